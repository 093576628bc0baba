"""Pooling."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.moves import padded, take_range
from ...building.types import is_float
from ...building.value import GraphValue
from ..node import OnnxNode
from .windows import Windows


def _windows(n: OnnxNode) -> Windows:
    x, kernel = n[0], n.wholes("kernel_shape")
    if x.rank < 3 or len(kernel) != x.rank - 2:
        raise FormatError(f"kernel_shape {kernel} does not fit data {x.shape}.")
    return Windows.of(n, x.shape[2:], kernel)


def _pooling(x: GraphValue, w: Windows, kind: str, pads: tuple[int, ...], **parameters: Any) -> GraphValue:
    return x.builder.op(
        "Pooling", x, kernel=w.kernel, stride=w.stride, pad=pads, pool_type=kind, **parameters
    )


def _parts(x: GraphValue, w: Windows) -> list[GraphValue]:
    """The data under each element of the window, one array an element; `x` is padded already."""
    parts = []
    for first in w.elements():
        part = x
        for i, (begin, stride, out) in enumerate(zip(first, w.stride, w.out)):
            part = take_range(part, i + 2, range(begin, begin + (out - 1) * stride + 1, stride))
        parts.append(part)
    return parts


def max_pool(n: OnnxNode) -> Any:
    b, x = n.builder, n[0]
    w = _windows(n)
    plain = is_float(x.dtype) and len(w.size) <= 3 and all(d == 1 for d in w.dilate) and not n.wants(1)
    if plain and w.simple:
        return _pooling(x, w, "max", tuple(p for p, _ in w.pads))
    dtype = x.dtype
    x = x if is_float(dtype) else b.cast(x, np.float32)
    x = padded(x, [(0, 0), (0, 0), *w.reach], fill=float("-inf"))
    if plain:
        return _pooling(x, w, "max", (0,) * len(w.size))
    parts = _parts(x, w)
    out = b.cast(reduce(lambda a, c: b.binary("maximum", a, c), parts), dtype)
    return (out, _places(n, parts, w)) if n.wants(1) else out


def _places(n: OnnxNode, parts: list[GraphValue], w: Windows) -> GraphValue:
    """Positions of the maxima in the data, flattened with its samples and channels."""
    b, shape = n.builder, n[0].shape
    rank = len(w.size)
    together = b.concat([b.reshape(p, (1, *p.shape)) for p in parts], 0)
    chosen = b.cast(b.op("argmax", together, axis=0), np.int64)
    order = range(rank)[::-1] if n.flag("storage_order") else range(rank)
    strides, step = [0] * rank, 1
    for i in reversed(list(order)):
        strides[i], step = step, step * w.size[i]
    inside = np.array([sum(f * s for f, s in zip(first, strides)) for first in w.elements()], np.int64)
    base = np.arange(prod(shape[:2]), dtype=np.int64).reshape(*shape[:2], *(1,) * rank) * prod(w.size)
    for i in range(rank):
        starts = np.arange(w.out[i]) * w.stride[i] - w.pads[i][0]
        base = base + (starts * strides[i]).reshape(-1, *(1,) * (rank - 1 - i))
    return b.binary("add", b.op("take", b.constant(inside), chosen), b.constant(base))


def max_unpool(n: OnnxNode) -> GraphValue:
    """Each element at the position its index names in the data that was pooled, zeros elsewhere."""
    b, x, indices = n.builder, n[0], n[1]
    kernel = n.wholes("kernel_shape")
    stride = n.wholes("strides", None) or (1,) * len(kernel)
    pads = n.wholes("pads", None) or (0,) * (2 * len(kernel))
    rank = len(kernel)
    size = tuple(
        (d - 1) * s + k - pads[i] - pads[i + rank]
        for i, (d, s, k) in enumerate(zip(x.shape[2:], stride, kernel))
    )
    shape = (*x.shape[:2], *size)
    empty = b.full((prod(shape),), 0, x.dtype)
    flat = b.op("scatter_elements", empty, b.reshape(indices, (x.size,)), b.reshape(x, (x.size,)), axis=0)
    out = b.reshape(flat, shape)
    wanted = n.known_ints(2, "output_shape")
    return out if wanted is None else padded(out, [(0, w - d) for d, w in zip(shape, wanted, strict=True)])


def average_pool(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    w = _windows(n)
    whole = n.flag("count_include_pad")
    plain = len(w.size) <= 3 and all(d == 1 for d in w.dilate)
    if plain and w.simple:
        return _pooling(x, w, "avg", tuple(p for p, _ in w.pads), count_include_pad=whole)
    total = sum_pool(x, w)
    counts = np.ones((), np.float64)
    for i, (d, k, s, e, (p, q)) in enumerate(zip(w.size, w.kernel, w.stride, w.dilate, w.pads)):
        low, high = (-p, d + q) if whole else (0, d)
        places = (np.arange(w.out[i]) * s - p)[:, None] + np.arange(k) * e
        inside = ((places >= low) & (places < high)).sum(1)
        counts = counts[..., None] * inside
    return b.binary("mul", total, b.constant(1 / np.maximum(counts, 1), x.dtype))


def sum_pool(x: GraphValue, w: Windows) -> GraphValue:
    """The sum over each window, pads being zeros."""
    x = padded(x, [(0, 0), (0, 0), *w.reach])
    if len(w.size) <= 3 and all(d == 1 for d in w.dilate):
        return _pooling(x, w, "sum", (0,) * len(w.size))
    parts = _parts(x, w)
    return x.builder.op("add_n", *parts) if len(parts) > 1 else parts[0]


def lp_pool(n: OnnxNode) -> GraphValue:
    b, x, p = n.builder, n[0], n.whole("p", 2) if n.version > 1 else n.real("p", 2.0)
    size = b.op("abs", x) if p % 2 else x
    powers = size if p == 1 else b.op("_power_scalar", size, scalar=float(p))
    total = sum_pool(powers, _windows(n))
    return total if p == 1 else b.op("_power_scalar", total, scalar=1 / p)


def _global(kind: str) -> Callable[[OnnxNode], GraphValue]:
    def convert(n: OnnxNode) -> GraphValue:
        b, x = n.builder, n[0]
        if 3 <= x.rank <= 5 and x.size:
            return b.op("Pooling", x, kernel=(1,) * (x.rank - 2), pool_type=kind, global_pool=True)
        return b.reduce("mean" if kind == "avg" else kind, x, range(2, x.rank))

    return convert


def global_lp_pool(n: OnnxNode) -> GraphValue:
    b, x, p = n.builder, n[0], float(n.whole("p", 2) if n.version > 1 else n.real("p", 2.0))
    total = b.reduce("sum", b.op("_power_scalar", b.op("abs", x), scalar=p), range(2, x.rank))
    return b.op("_power_scalar", total, scalar=1 / p)


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": _global("avg"),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": _global("max"),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
}
