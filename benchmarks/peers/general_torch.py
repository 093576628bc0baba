"""PyTorch's side of benchmarks/generality.py."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from harness.worker import serve
from networks import general
from networks.named import joined, load, named
from torch import nn
from torch.nn import functional as F

from peers.agreement import GRADIENT, projections
from peers.peer import Arrays
from peers.torch_peer import PyTorch


class General(PyTorch):
    """A network of networks/general."""

    def build(
        self, spec: dict[str, Any], answers: str | None = None, exact: str | None = None, **options: Any
    ) -> None:
        """`answers`: the file for what the first step computes, see agreement.py; `exact`: for the same in
        float64."""
        self.spec = spec
        if exact is not None:
            np.savez(exact, **self.in_float64())
            gc.collect()
        super().build(spec, **options)
        if answers is not None:
            self.push_step()
            np.savez(answers, **found(self.net, self.out))

    def network(self, spec: dict[str, Any], **options: Any) -> nn.Module:
        return general.network(spec["name"]).twin(**spec["sizes"])

    def batch(self, spec: dict[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
        data = Arrays(spec["arrays"], "data")
        x = [torch.tensor(data[n]).long() if n in spec["whole"] else torch.tensor(data[n]) for n in data]
        y = torch.tensor(Arrays(spec["arrays"], "label")["softmax_label"])
        return x, y.long() if spec["loss"] == "classes" else y

    def layout(self, spec: dict[str, Any]) -> torch.memory_format:
        return getattr(torch, spec["layout"])

    def objective(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.spec["loss"] == "classes":
            return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y)
        lost = F.mse_loss if self.spec["loss"] == "squares" else F.binary_cross_entropy_with_logits
        return lost(scores, y)

    def loss(self, turn: int) -> float:
        return super().loss(turn) if self.spec["train"] else projections(self.out.numpy())[turn]

    def in_float64(self) -> dict[str, np.ndarray]:
        net = self.network(self.spec).double().train(self.spec["train"])
        load(net, {**Arrays(self.spec["arrays"], "arg"), **Arrays(self.spec["arrays"], "aux")})
        x, y = self.batch(self.spec)
        *x, y = (t.double() if t.is_floating_point() else t for t in (*x, y))
        with torch.set_grad_enabled(self.spec["train"]):
            out = net(*x)
            if self.spec["train"]:
                out = self.objective(out, y)
                out.backward()
        return found(net, out)


def found(net: nn.Module, out: torch.Tensor) -> dict[str, np.ndarray]:
    """What a step has computed: the output of inference; of training the loss, gradients, running means."""
    if not net.training:
        return {"output": out.numpy()}
    arrays = {"loss": out.detach().numpy()}
    for name, parts in named(net).items():
        if name.endswith("moving_mean"):
            arrays[name] = joined(parts)
        elif not name.endswith("moving_var"):
            arrays[f"{GRADIENT}{name}"] = joined([t.grad for t in parts])
    return arrays


if __name__ == "__main__":
    serve(General().answer)
