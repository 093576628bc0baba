"""PyTorch's side of benchmarks/products.py: MKL's products, and its convolutions."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from harness.worker import serve

from peers.kernel_peer import Call, KernelPeer
from peers.products import Row, ROWS
from peers.torch_peer import PyTorch


class Theirs(KernelPeer):
    """A convolution has its data as PyTorch has it, and with channels last."""

    rows = ROWS

    def versions(self) -> dict[str, str]:
        return PyTorch().versions()

    def calls(self, row: Row, arrays: list[np.ndarray]) -> dict[str, Call]:
        x, y = (torch.tensor(a) for a in arrays)
        if not row.stride:
            out = torch.empty(len(x), y.shape[1])
            return {"torch": Call(lambda: torch.mm(x, y, out=out), "", lambda: [out.numpy()])}
        last = torch.channels_last
        return {
            "torch": convolved(row, x, y),
            "channels last": convolved(row, x.to(memory_format=last), y.to(memory_format=last)),
        }


def convolved(row: Row, x: torch.Tensor, weight: torch.Tensor) -> Call:
    found: list[torch.Tensor] = []

    @torch.inference_mode()
    def run() -> None:
        found[:] = [torch.nn.functional.conv2d(x, weight, None, row.stride, row.pad, 1, row.groups)]

    return Call(run, "", lambda: [found[0].contiguous().numpy()])


if __name__ == "__main__":
    serve(Theirs().answer)
