"""scaled_dot_product_attention: on tensor cores by cuBLASLt if possible, else without storing the scores."""

from __future__ import annotations

from typing import Any

from .....ops.nn.attention import scaled_dot_product_attention
from ....base import ChosenKernel, Request
from ...matrix.attention import Attention
from ...matrix.attention_blocks import Blocks
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.rates import precision_of
from ...runtime.scratch import begin, room


def _row(device: Device, r: Request) -> ChosenKernel | None:
    whole, back = Attention.of(device, r.attrs, r.inputs, r.dtypes), r.op.forward_op is not None
    if whole is None:
        return None
    blocks = Blocks.of(whole, back)
    names = r.op.signature.needs if back else r.op.input_names(r.attrs)

    def connect(a: Any, *inputs: Any, work: Any, rng: Any, train: bool, **outs: Any) -> Run:
        given = dict(zip(names, inputs if back else (x for x in inputs if x is not None)))
        arrays, at = dict.fromkeys(("mask", "length")) | given | outs, begin(device, work)
        if blocks is None:
            return whole.backward(arrays, at, rng, train) if back else whole.forward(arrays, rng, train)
        if not back:
            return blocks.connect(arrays, at, rng, train)
        mask_only = arrays | dict.fromkeys(("d_query", "d_key", "d_value"))
        return InOrder([whole.backward(mask_only, at, rng, train), blocks.connect(arrays, at, rng, train)])

    nbytes = max(0 if blocks is None else blocks.nbytes, whole.delta_bytes if back else 0)
    name, precision = "cuda" if blocks is None else "cublasLt", precision_of(whole.dtype)
    return answer(r, connect, room(nbytes), f"{name} attention", precision=precision)


rows = table((scaled_dot_product_attention, _row, _row))
