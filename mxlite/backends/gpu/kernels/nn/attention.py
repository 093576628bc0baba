"""scaled_dot_product_attention: on tensor cores by cuBLASLt if possible, else without storing the scores."""

from __future__ import annotations

from typing import Any

from .....graph.opdef import Op
from .....ops.nn.attention import scaled_dot_product_attention
from ....base import ChosenKernel, Request
from ...matrix.attention import Attention
from ...matrix.attention_blocks import Blocks
from ...rows import answer, gradient_of
from ...runtime.device import Device, InOrder, Run
from ...runtime.rates import precision_of
from ...runtime.scratch import begin, room


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def forward(r: Request) -> ChosenKernel | None:
        whole = Attention.of(device, r.attrs, r.inputs, r.dtypes)
        if whole is None:
            return None
        blocks = Blocks.of(whole, backward=False)
        names = r.op.input_names(r.attrs)

        def connect(a: Any, *inputs: Any, out: Any, log_sum: Any, work: Any, rng: Any, train: bool) -> Run:
            given = dict(zip(names, (x for x in inputs if x is not None)))
            arrays = dict.fromkeys(("mask", "length")) | given | {"out": out, "log_sum": log_sum}
            if blocks is not None:
                return blocks.connect(arrays, begin(device, work), rng, train)
            return whole.forward(arrays, rng, train)

        nbytes, name = (0, "cuda") if blocks is None else (room(blocks.nbytes), "cublasLt")
        precision = precision_of(whole.dtype)
        return answer(r, connect, nbytes, f"{name} attention", precision=precision)

    def backward(r: Request) -> ChosenKernel | None:
        whole = Attention.of(device, r.attrs, r.inputs, r.dtypes)
        if whole is None:
            return None
        blocks = Blocks.of(whole, backward=True)
        needs = r.op.signature.needs

        def connect(a: Any, *inputs: Any, work: Any, rng: Any, train: bool, **outs: Any) -> Run:
            arrays, at = dict(zip(needs, inputs)) | outs, begin(device, work)
            if blocks is None:
                return whole.backward(arrays, at, rng, train)
            mask_only = arrays | dict.fromkeys(("d_query", "d_key", "d_value"))
            of_mask = whole.backward(mask_only, at, rng, train)
            return InOrder([of_mask, blocks.connect(arrays, at, rng, train)])

        nbytes = whole.delta_bytes if blocks is None else max(blocks.nbytes, whole.delta_bytes)
        name, precision = "cuda" if blocks is None else "cublasLt", precision_of(whole.dtype)
        return answer(r, connect, room(nbytes), f"{name} attention", precision=precision)

    op = scaled_dot_product_attention
    return {op: [forward], gradient_of(op): [backward]}
