"""LRN, channels first or last: factors of each element are computed first if neighbours are overwritten.

Data is read once from memory (neighbours are in the cache) and out is written once; in place, and for the
gradient, the factors lie in scratch of the compute type.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.norm.lrn import LRN
from .....ops.norm.lrn_channels_last import LrnChannelsLast
from .....ops.scratch import accumulator
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...handwritten.each import each, typed
from ...handwritten.layout import MOST
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.scratch import padded


def _numbers(a: Any, shape: Shape, last: bool) -> tuple[Any, ...]:
    """Arguments of all kernels: channels, inner, reach of neighbours, factor of squares, knorm, beta."""
    channels, inner = (shape[-1], 1) if last else (shape[1], prod(shape[2:]))
    return channels, inner, (a.nsize - 1) // 2, a.alpha / a.nsize, float(a.knorm), float(a.beta)


def _fits(r: Request) -> bool:
    return floating(r.dtype) and prod(r.inputs[0]) <= MOST


def _forward(device: Device, r: Request, last: bool) -> ChosenKernel | None:
    if not _fits(r):
        return None
    size, text = prod(r.inputs[0]), typed(str(r.dtype), "images")

    def connect(a: Any, data: Any, *, out: Any, work: Any) -> Run:
        numbers = _numbers(a, data.shape, last)
        if device.address(out) != device.address(data):
            return each(device, text, "lrn_factor", size, data, out, None, *numbers)
        factors = each(device, text, "lrn_factor", size, data, None, work, *numbers)
        return InOrder([factors, each(device, text, "lrn_scale", size, data, out, work)])

    return answer(r, connect, size * accumulator(r.dtype).itemsize, "cuda lrn")


def _backward(device: Device, r: Request, last: bool) -> ChosenKernel | None:
    if not _fits(r):
        return None
    size, text = prod(r.inputs[0]), typed(str(r.dtype), "images")
    half = padded(size * accumulator(r.dtype).itemsize)

    def connect(a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> Run:
        channels, inner, reach, share, knorm, beta = _numbers(a, data.shape, last)
        where, near, own = (channels, inner, reach), work[:half], work[half:]
        parts = each(device, text, "lrn_parts", size, d_out, data, near, own, *where, share, knorm, beta)
        arrays, factor = (data, near, own, d_data), 2 * share * beta
        return InOrder([parts, each(device, text, "lrn_gradient", size, *arrays, *where, factor)])

    return answer(r, connect, 2 * half, "cuda lrn gradient")


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    return table(
        device,
        *(
            (op, partial(_forward, last=last), partial(_backward, last=last))
            for op, last in ((LRN, False), (LrnChannelsLast, True))
        ),
    )
