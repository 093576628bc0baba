"""PyTorch's side of gluon_steps: eager."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from harness.worker import serve

from peers.gluon_nets import GluonNet, MOMENTUM, NETS, RATE
from peers.kernel_peer import Call, KernelPeer
from peers.torch_peer import PyTorch


class Theirs(KernelPeer):
    rows = NETS

    def versions(self) -> dict[str, str]:
        return PyTorch().versions()

    def calls(self, row: GluonNet, arrays: list[np.ndarray]) -> dict[str, Call]:
        functional = torch.nn.functional
        data, label = torch.tensor(arrays[0]), torch.tensor(arrays[1].astype(np.int64))
        parameters = [torch.nn.Parameter(torch.tensor(x)) for x in arrays[2:]]
        layers = list(zip(parameters[::2], parameters[1::2]))
        optimizer = torch.optim.SGD(parameters, RATE, MOMENTUM)

        def scores() -> Any:
            x = data
            for w, b in layers[:-1]:
                if row.image:
                    x = x + torch.relu(functional.conv2d(x, w, b, padding=1))
                else:
                    x = torch.relu(functional.linear(x, w, b))
            return functional.linear(x.mean((2, 3)) if row.image else x, *layers[-1])

        def step() -> Any:
            optimizer.zero_grad(set_to_none=True)
            losses = functional.cross_entropy(scores(), label, reduction="none")
            losses.mean().backward()
            optimizer.step()
            return losses

        losses = [step().detach().numpy() for _ in range(3)]
        return {"step": Call(step, "", lambda: losses)}


if __name__ == "__main__":
    serve(Theirs().answer)
