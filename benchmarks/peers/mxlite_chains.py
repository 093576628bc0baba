"""mxlite's side of chains: bound programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

import mxlite as mx
from peers.chains import Chain, CHAINS
from peers.kernel_peer import Call, head, KernelPeer
from peers.mxlite_peer import MXLite


class Ours(KernelPeer):
    """A program for inference, and one that makes all gradients."""

    rows = CHAINS

    def versions(self) -> dict[str, str]:
        return MXLite().versions()

    def calls(self, row: Chain, arrays: list[np.ndarray]) -> dict[str, Call]:
        names = [f"x{i}" for i in range(len(arrays))]
        symbol = row.ours(mx.sym, *map(mx.sym.Variable, names))
        given = {n: mx.nd.array(x) for n, x in zip(names, arrays)}
        gradients = {n: mx.nd.zeros(x.shape) for n, x in given.items()}
        once = symbol.bind(mx.cpu(), given, grad_req="null")
        both = symbol.bind(mx.cpu(), given, args_grad=gradients)
        d_out = mx.nd.array(head(symbol.infer_shape(**{n: x.shape for n, x in given.items()})[1][0]))

        def forward() -> None:
            once.forward(is_train=False)
            mx.nd.waitall()

        def step() -> None:
            both.forward(is_train=True)
            both.backward([d_out])
            mx.nd.waitall()

        return {
            "forward": Call(forward, _kernels(once), lambda: [once.outputs[0].asnumpy()]),
            "step": Call(step, _kernels(both), lambda: [g.asnumpy() for g in gradients.values()]),
        }


def _kernels(executor: Any) -> str:
    """How many calls a run makes."""
    tasks = executor.memory_plan.problem.tasks
    return f"{len(tasks)} {'call' if len(tasks) == 1 else 'calls'}"


if __name__ == "__main__":
    serve(Ours().answer)
