"""PyTorch's side of chains: eager, or compiled if the environment says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from harness.worker import serve

from peers.chains import Chain, CHAINS, COMPILED
from peers.kernel_peer import Call, head, KernelPeer
from peers.torch_peer import PyTorch


class Theirs(KernelPeer):
    """A forward call is made in inference mode; a step is a forward call and the gradients of all inputs."""

    rows = CHAINS

    def versions(self) -> dict[str, str]:
        return PyTorch().versions()

    def calls(self, row: Chain, arrays: list[np.ndarray]) -> dict[str, Call]:
        def run(*inputs: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = row.torch(torch, *inputs)
            return made

        torch.compiler.reset()
        function = torch.compile(run) if os.environ.get(COMPILED) else run
        inputs = [torch.tensor(x) for x in arrays]
        leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
        d_out = torch.tensor(head(tuple(run(*inputs).shape)))
        found: dict[str, Any] = {}

        @torch.inference_mode()
        def forward() -> None:
            found["out"] = function(*inputs)

        def step() -> None:
            found["gradients"] = torch.autograd.grad(function(*leaves), leaves, d_out)

        return {
            "forward": Call(forward, "", lambda: [found["out"].numpy()]),
            "step": Call(step, "", lambda: [g.numpy() for g in found["gradients"]]),
        }


if __name__ == "__main__":
    serve(Theirs().answer)
