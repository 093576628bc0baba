"""LRN, channels first or last: factors of each element are computed first if neighbours are overwritten.

Data is read once from memory (neighbours are in the cache) and out is written once; in place, and for the
gradient, the factors lie in scratch of the compute type.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.norm.lrn import LRN
from .....ops.norm.lrn_channels_last import LrnChannelsLast
from .....ops.scratch import accumulator
from ...compiler.kinds import floating
from ...handwritten.each import each, typed
from ...handwritten.layout import MOST
from ...rows import At, row, table, where
from ...runtime.device import InOrder, Run
from ...runtime.scratch import padded


def _numbers(at: At) -> tuple[Any, ...]:
    """Arguments of all kernels: channels, inner, reach of neighbours, factor of squares, knorm, beta."""
    a, shape = at.r.attrs, at.r.inputs[0]
    last = (at.r.op.forward_op or at.r.op) is LrnChannelsLast
    channels, inner = (shape[-1], 1) if last else (shape[1], prod(shape[2:]))
    return channels, inner, (a.nsize - 1) // 2, a.alpha / a.nsize, float(a.knorm), float(a.beta)


def _nbytes(at: At) -> int:
    """Bytes of a factor for each element."""
    return prod(at.r.inputs[0]) * accumulator(at.r.dtype).itemsize


_at = where(lambda r: floating(r.dtype) and prod(r.inputs[0]) <= MOST)


@row(_at, "cuda lrn", _nbytes)
def _forward(at: At, a: Any, data: Any, *, out: Any, work: Any) -> Run:
    device, text, numbers = at.device, typed(str(data.dtype), "images"), _numbers(at)
    if device.address(out) != device.address(data):
        return each(device, text, "lrn_factor", data.size, data, out, None, *numbers)
    factors = each(device, text, "lrn_factor", data.size, data, None, work, *numbers)
    return InOrder([factors, each(device, text, "lrn_scale", data.size, data, out, work)])


@row(_at, "cuda lrn gradient", lambda at: 2 * padded(_nbytes(at)))
def _backward(at: At, a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> Run:
    device, text, half = at.device, typed(str(data.dtype), "images"), padded(_nbytes(at))
    channels, inner, reach, share, knorm, beta = _numbers(at)
    places, near, own = (channels, inner, reach), work[:half], work[half:]
    parts = each(device, text, "lrn_parts", data.size, d_out, data, near, own, *places, share, knorm, beta)
    arrays, factor = (data, near, own, d_data), 2 * share * beta
    return InOrder([parts, each(device, text, "lrn_gradient", data.size, *arrays, *places, factor)])


rows = table(*((op, _forward, _backward) for op in (LRN, LrnChannelsLast)))
