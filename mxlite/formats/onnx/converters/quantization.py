"""Whole numbers that stand for real ones: value = (number - zero point) * scale. uint8, int8 and int32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.rounding import rounded
from ...building.types import running_type
from ...building.value import GraphValue
from ..dtypes import numpy_type
from ..node import OnnxNode
from .convolution import convolved


def _spread(n: OnnxNode, value: GraphValue, x: GraphValue) -> GraphValue:
    """A scale or zero point reshaped to broadcast to `x`: one, one a slice of `axis`, or one a block."""
    b = n.builder
    if value.size == 1 and value.rank <= 1:
        return b.reshape(value, ())
    axis = b.axis(n.whole("axis", 1), x.rank)
    block = n.whole("block_size", 0)
    if block:
        wide: GraphValue = b.op("repeat", value, repeats=block, axis=axis)
        return b.slice(wide, axis, 0, x.shape[axis])
    return b.reshape(value, (value.size, *(1,) * (x.rank - 1 - axis)))


def _saturated(x: GraphValue, dtype: Any) -> GraphValue:
    """Values rounded, halves to even, and clipped to the range of `dtype`."""
    limits = np.iinfo(running_type(np.dtype(dtype), "the result"))
    b = x.builder
    return b.cast(b.op("clip", x, a_min=float(limits.min), a_max=float(limits.max)), dtype)


def quantize(n: OnnxNode) -> GraphValue:
    b, x, scale, zero = n.builder, n[0], n[1], n.get(2)
    dtype: Any = np.dtype(np.uint8) if zero is None else zero.dtype
    if zero is None and n.whole("output_dtype", 0):
        dtype = numpy_type(n.whole("output_dtype"), "the result")
    if dtype.kind not in "iu":
        raise FormatError(f"numbers are quantized to whole numbers, not to {dtype}.")
    ratio = b.binary("div", b.cast(x, np.float32), b.cast(_spread(n, scale, x), np.float32))
    whole = rounded(ratio)
    if zero is not None:
        whole = b.binary("add", whole, b.cast(_spread(n, zero, x), np.float32))
    return _saturated(whole, dtype)


def dequantize(n: OnnxNode) -> GraphValue:
    b, x, scale, zero = n.builder, n[0], n[1], n.get(2)
    wide = b.cast(x, np.float64 if x.dtype.itemsize == 4 else np.float32)
    if zero is not None:
        wide = b.binary("sub", wide, b.cast(_spread(n, zero, x), wide.dtype))
    out = b.binary("mul", wide, b.cast(_spread(n, scale, x), wide.dtype))
    to = n.whole("output_dtype", 0)
    return b.cast(out, numpy_type(to, "the result") if to else scale.dtype)


def _exact(b: Any, value: GraphValue, zero: GraphValue, shape: tuple[int, ...] | None = None) -> GraphValue:
    """Whole numbers less their zero point, in float64, where their products are exact."""
    zero = b.cast(zero, np.float64)
    zero = b.reshape(zero, shape if shape is not None and zero.size > 1 else ())
    return b.binary("sub", b.cast(value, np.float64), zero)


def _requantized(
    n: OnnxNode, total: GraphValue, scales: tuple[GraphValue, ...], shape: tuple[int, ...]
) -> GraphValue:
    b = n.builder
    factors = [b.cast(b.reshape(s, shape if s.size > 1 else ()), np.float64) for s in scales]
    out_scale, zero = n[6], n[7]
    factor = b.binary("div", b.binary("mul", *factors), b.cast(b.reshape(out_scale, ()), np.float64))
    whole = rounded(b.binary("mul", total, factor))
    return _saturated(b.binary("add", whole, b.cast(b.reshape(zero, ()), np.float64)), zero.dtype)


def matmul(n: OnnxNode) -> GraphValue:
    """Each operand has one scale and zero point, or one a row of the first and a column of the second."""
    b = n.builder
    rows, columns = (n[0].shape[-2], 1), (n[3].shape[-1],)
    left, right = _exact(b, n[0], n[2], rows), _exact(b, n[3], n[5], columns)
    total = b.matmul(left, right)
    if n[1].size > 1:
        total = b.binary("mul", total, b.cast(b.reshape(n[1], rows), np.float64))
        return _requantized(n, total, (b.full((), 1, n[1].dtype), n[4]), columns)
    return _requantized(n, total, (n[1], n[4]), columns)


def conv(n: OnnxNode) -> GraphValue:
    b, bias = n.builder, n.get(8)
    x, filters = _exact(b, n[0], n[2]), n[3]
    weight = _exact(b, filters, n[5], (filters.shape[0], *(1,) * (filters.rank - 1)))
    total = convolved(n, x, weight, None if bias is None else b.cast(bias, np.float64))
    return _requantized(n, total, (n[1], n[4]), (filters.shape[0], *(1,) * (filters.rank - 2)))


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "DequantizeLinear": dequantize,
    "QLinearConv": conv,
    "QLinearMatMul": matmul,
    "QuantizeLinear": quantize,
}
