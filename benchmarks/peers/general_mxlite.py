"""mxlite's side of benchmarks/generality.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

from peers.agreement import GRADIENT, projections
from peers.mxlite_peer import MXLite


class General(MXLite):
    """A network of networks/general."""

    def build(self, spec: dict[str, Any], answers: str | None = None, **options: Any) -> None:
        """`answers`: the file for what the first step computes, see agreement.py."""
        super().build(spec, **options)
        if answers is not None:
            np.savez(answers, **self.answers())

    def loss(self, turn: int) -> float:
        if self.spec["train"]:
            return super().loss(turn)
        return projections(self.module.get_outputs()[0].asnumpy())[turn]

    def answers(self) -> dict[str, np.ndarray]:
        """Gradients are those of the step that is timed, in which they are not kept: after the first step,
        each optimizer state is one, times minus the learning rate."""
        self.push_step()
        self.wait()
        if not self.spec["train"]:
            return {"output": self.module.get_outputs()[0].asnumpy()}
        found = {"loss": np.array(self.loss(0))}
        for name, state in self.executor.optimizer_states.items():
            found[f"{GRADIENT}{name.removesuffix(':mom')}"] = state.asnumpy() / -self.spec["rate"]
        _, states = self.module.get_params()
        found |= {n: a.asnumpy() for n, a in states.items() if n.endswith("moving_mean")}
        return found


if __name__ == "__main__":
    serve(General().answer)
