"""Writing by index or mask: an array with some of its elements replaced or combined with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue, is_float, NotSupportedError
from ..node import TorchNode
from .index import beginning, indexed_axes

_KINDS = {
    None: "none", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "mean": "add", "amax": "max",
    "amin": "min",
}  # fmt: skip
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}


def scatter(n: TorchNode) -> GraphValue:
    """scatter, scatter_add, scatter_reduce: `src`, or its first part, or a number, at `index` of one axis."""
    b, x, places = n.builder, n["self"], n["index"]
    if n.plain("src") is not None:
        source = n["src"]
        for axis, size in enumerate(places.shape):
            source = b.slice(source, axis, 0, size)
    else:
        source = b.full(places.shape, n.plain("value"), x.dtype)
    how = "sum" if "scatter_add" in n.target else n.plain("reduce")
    axis = b.axis(n.plain("dim"), x.rank)

    def write(target: GraphValue, part: GraphValue, reduction: str) -> GraphValue:
        return b.op("scatter_elements", target, places, part, axis=axis, reduction=reduction)

    return _combined(n, x, source, how, write)


def rows_added(n: TorchNode) -> GraphValue:
    """index_add: rows of `source` at `index` of one axis."""
    b, x, source, alpha = n.builder, n["self"], n["source"], n.plain("alpha", 1)
    source = source if alpha == 1 else source * float(alpha)
    places = b.reshape(n["index"], (n["index"].size,))
    return b.op("index_add", x, places, b.cast(source, x.dtype), axis=b.axis(n.plain("dim"), x.rank))


def rows_combined(n: TorchNode) -> GraphValue:
    """index_reduce: rows of `source` at `index` of one axis, combined as `reduce` says."""
    b, x = n.builder, n["self"]
    axis, places = b.axis(n.plain("dim"), x.rank), b.reshape(n["index"], (1, n["index"].size))
    order = (axis, *(i for i in range(x.rank) if i != axis))

    def write(target: GraphValue, part: GraphValue, reduction: str) -> GraphValue:
        return b.op("scatter_nd_update", target, places, part, reduction=reduction)

    out = _combined(n, b.transpose(x, order), b.transpose(n["source"], order), n.plain("reduce"), write)
    return b.transpose(out, np.argsort(order).tolist())


def _combined(
    n: TorchNode,
    x: GraphValue,
    source: GraphValue,
    how: str | None,
    write: Callable[[GraphValue, GraphValue, str], GraphValue],
) -> GraphValue:
    """`x` with `source` written to it, combined as `how` says; without `include_self`, of the elements that
    are written, what they were does not count.
    """
    b = n.builder
    if how not in _KINDS:
        raise NotSupportedError(f"a reduction by {how!r}")
    kind, source = _KINDS[how], b.cast(source, x.dtype)
    own = how is None or bool(n.plain("include_self", True))
    if how == "mean" and not is_float(x.dtype):
        raise NotSupportedError("the mean of whole numbers")
    start = x if own else write(x, b.full(source.shape, _neutral(kind, x.dtype), x.dtype), "none")
    out = write(start, source, kind)
    if how != "mean":
        return out
    counts = write(b.full(x.shape, float(own), x.dtype), b.full(source.shape, 1, x.dtype), "add")
    return b.binary("div", out, counts if own else b.binary("maximum", counts, 1.0))


def _neutral(kind: str, dtype: Any) -> float:
    """The number that changes no other: for largest and least of whole numbers, the ends of their range."""
    if is_float(dtype) or kind in ("add", "mul"):
        return _NEUTRAL[kind]
    return float(np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max)


def index_put(n: TorchNode) -> GraphValue:
    """x[indices] = values, or += with `accumulate`; a mask with unknown numbers becomes a where."""
    b, x, values = n.builder, n["self"], n.builder.cast(n["values"], n["self"].dtype)
    found = n.plain("indices")
    if len(found) == 1 and found[0] is not None and n.value(found[0]).dtype == np.bool_:
        mask = n.value(found[0])
        if values.size == 1 and not n.plain("accumulate", False):
            mask = b.reshape(mask, mask.shape + (1,) * (x.rank - mask.rank))
            return b.where(mask, b.reshape(values, ()), x)
        if mask.array is None:
            raise NotSupportedError("values written through a mask; one number could be written")
    axes, places = indexed_axes(n)
    first = beginning(axes)
    rest = [i for i in range(x.rank) if i not in axes]
    shape = (*(x.shape[i] for i in rest[:first]), *places[0].shape, *(x.shape[i] for i in rest[first:]))
    values = b.expand(values, shape)
    # The axes of the indices, and those they stand for, go to the front.
    count = range(first, first + places[0].rank)
    values = b.transpose(values, (*count, *(i for i in range(values.rank) if i not in count)))
    order = [*axes, *rest]
    out = _rows_written(b.transpose(x, order), places, values, bool(n.plain("accumulate", False)))
    return b.transpose(out, np.argsort(order).tolist())


def _rows_written(x: GraphValue, places: list[GraphValue], values: GraphValue, adds: bool) -> GraphValue:
    """`x` (D..., B...) with `values` (I..., B...) at the indices (I...) of each of its first axes D."""
    b = x.builder
    at = b.concat([b.reshape(b.cast(v, np.int64), (1, *v.shape)) for v in places], 0)
    return b.op("scatter_nd_update", x, at, values, reduction="add" if adds else "none")


def put(n: TorchNode) -> GraphValue:
    """`source` at the numbers of elements of all."""
    b, x = n.builder, n["self"]
    values = b.cast(n["source"], x.dtype)
    out = _rows_written(b.reshape(x, (x.size,)), [n["index"]], values, bool(n.plain("accumulate", False)))
    return b.reshape(out, x.shape)


def masked_scatter(n: TorchNode) -> GraphValue:
    """The elements of `source` in their order, where the mask holds."""
    b, x, source = n.builder, n["self"], n["source"]
    mask = b.expand(n["mask"], n.shape)
    counts = b.op("cumsum", b.cast(b.reshape(mask, (mask.size,)), np.int64), axis=0)
    at = b.binary("maximum", counts + -1.0, 0.0)
    taken = b.reshape(b.op("take", b.reshape(source, (source.size,)), at, axis=0), n.shape)
    return b.where(mask, taken, x)


def diagonal_written(n: TorchNode) -> GraphValue:
    """`src` on a diagonal of two axes."""
    b, x = n.builder, n["self"]
    offset, ends = n.plain("offset", 0), (n.plain("dim1", 0), n.plain("dim2", 1))
    first, second = (b.axis(i, x.rank) for i in ends)
    order = [first, second, *(i for i in range(x.rank) if i not in (first, second))]
    turned = b.transpose(x, order)
    source = b.transpose(n["src"], (n["src"].rank - 1, *range(n["src"].rank - 1)))
    steps = np.arange(source.shape[0])
    places = [b.constant(steps + at, np.int64) for at in (max(0, -offset), max(0, offset))]
    out = _rows_written(turned, places, b.cast(source, x.dtype), False)
    return b.transpose(out, np.argsort(order).tolist())


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), scatter),
    "diagonal_scatter": diagonal_written,
    "index_add": rows_added,
    "index_put": index_put,
    "index_reduce": rows_combined,
    "masked_scatter": masked_scatter,
    "put": put,
}
