"""PyTorch's side of single operators, eager."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from harness.worker import serve

from peers.kernel_peer import Call, head, KernelPeer
from peers.operators import Row
from peers.torch_peer import PyTorch

DTYPES = {"float": torch.float32, "whole": torch.int64, "condition": torch.bool}


class Theirs(KernelPeer):
    """A forward call is made in inference mode; a gradient is asked of a graph that is kept."""

    def versions(self) -> dict[str, str]:
        return PyTorch().versions()

    def calls(self, row: Row, arrays: list[np.ndarray]) -> dict[str, Call]:
        inputs = [torch.tensor(x).to(DTYPES[i.kind]) for x, i in zip(arrays, row.inputs)]

        @torch.inference_mode()
        def forward() -> Any:
            return row.torch(torch, *inputs)

        found = {"forward": call(forward, inputs)}
        leaves = [x.requires_grad_() for x in inputs if x.dtype == torch.float32]
        out = (row.loss or row.torch)(torch, *inputs)
        if out.requires_grad:
            d_out = torch.tensor(head(tuple(out.shape)))
            found["gradient"] = call(
                lambda: torch.autograd.grad(out, leaves, d_out, retain_graph=True), [*leaves, d_out]
            )
        return found


def call(run: Any, given: list[torch.Tensor]) -> Call:
    """`run`, looked at once: does it make arrays of its own?"""
    made = run()
    results = made if isinstance(made, tuple) else (made,)
    memory = {x.untyped_storage().data_ptr() for x in given}
    is_view = any(
        x.untyped_storage().data_ptr() in memory or x.untyped_storage().nbytes() < x.nbytes for x in results
    )
    return Call(run, "", lambda: [x.numpy() for x in results], is_view)


if __name__ == "__main__":
    serve(Theirs().answer)
