"""scaled_dot_product_attention on kernels that never hold the scores."""

from __future__ import annotations

from typing import Any

from ....graph.opdef import Op
from ....ops.attention import scaled_dot_product_attention
from ...base import ChosenKernel, connected, Request
from ..attention import Attention
from ..device import Device, Run
from ..products import ALIGN, gradient_of


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def forward(r: Request) -> ChosenKernel | None:
        how = Attention.of(device, r.attrs, r.inputs, r.dtypes)
        if how is None:
            return None
        names = r.op.input_names(r.attrs)

        def connect(
            xp: Any, a: Any, *inputs: Any, out: Any, log_sum: Any, work: Any, rng: Any, train: bool
        ) -> Run:
            arrays = dict.fromkeys(("mask", "length")) | dict(
                zip(names, (x for x in inputs if x is not None))
            )
            return how.forward(arrays | {"out": out, "log_sum": log_sum}, rng, train)

        return connected(connect, 0, "cuda attention", like=r.op.forward)

    def backward(r: Request) -> ChosenKernel | None:
        how = Attention.of(device, r.attrs, r.inputs, r.dtypes)
        if how is None:
            return None
        needs = r.op.signature.needs

        def connect(xp: Any, a: Any, *inputs: Any, work: Any, rng: Any, train: bool, **outs: Any) -> Run:
            room = -(-device.address(work) // ALIGN) * ALIGN if work is not None and work.size else 0
            return how.backward(dict(zip(needs, inputs)) | outs, room, rng, train)

        return connected(connect, how.delta_bytes + ALIGN, "cuda attention", like=r.op.forward)

    op = scaled_dot_product_attention
    return {op: [forward], gradient_of(op): [backward]}
