"""LRN, channels first or last: factors of each element are computed first if neighbours are overwritten.

Data is read once from memory (neighbours are in the cache) and out is written once; in place, and for the
gradient, the factors lie in scratch of the compute type.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.norm.lrn import LRN
from .....ops.norm.lrn_channels_last import LrnChannelsLast
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating
from ...handwritten.each import each, typed
from ...handwritten.layout import MOST
from ...runtime.device import Device, InOrder, Run


def _numbers(a: Any, shape: Shape, last: bool) -> tuple[Any, ...]:
    """Arguments of all kernels: channels, inner, reach of neighbours, factor of squares, knorm, beta."""
    channels, inner = (shape[-1], 1) if last else (shape[1], prod(shape[2:]))
    return channels, inner, (a.nsize - 1) // 2, a.alpha / a.nsize, float(a.knorm), float(a.beta)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def forward(r: Request, last: bool) -> ChosenKernel | None:
        dtype, size = str(r.dtype), prod(r.inputs[0])
        if not floating(r.dtype) or size > MOST:
            return None
        item = 8 if dtype == "float64" else 4

        def connect(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> Run:
            if out is None or not out.size:
                return InOrder([])
            numbers, text = _numbers(a, data.shape, last), typed(dtype, "images")
            if device.address(out) != device.address(data):
                return each(device, text, "lrn_factor", size, data, out, None, *numbers)
            return InOrder(
                [
                    each(device, text, "lrn_factor", size, data, None, work, *numbers),
                    each(device, text, "lrn_scale", size, data, out, work),
                ]
            )

        return connected(connect, size * item, "cuda lrn", like=r.op.forward)

    def backward(r: Request, last: bool) -> ChosenKernel | None:
        dtype, size = str(r.dtype), prod(r.inputs[0])
        if not floating(r.dtype) or size > MOST:
            return None
        half = -(-size * (8 if dtype == "float64" else 4) // 256) * 256

        def connect(xp: Any, a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> Run:
            if d_data is None or not d_data.size:
                return InOrder([])
            channels, inner, reach, share, knorm, beta = _numbers(a, data.shape, last)
            text, where = typed(dtype, "images"), (channels, inner, reach)
            near, own = work[:half], work[half:]
            parts = d_out, data, near, own, *where, share, knorm, beta
            return InOrder(
                [
                    each(device, text, "lrn_parts", size, *parts),
                    each(
                        device, text, "lrn_gradient", size, data, near, own, d_data, *where, 2 * share * beta
                    ),
                ]
            )

        return connected(connect, 2 * half, "cuda lrn gradient", like=r.op.forward)

    table: dict[type[Op], list[Any]] = {}
    for op, last in ((LRN, False), (LrnChannelsLast, True)):
        assert op.grad_op is not None
        table[op] = [lambda r, last=last: forward(r, last)]
        table[op.grad_op] = [lambda r, last=last: backward(r, last)]
    return table
