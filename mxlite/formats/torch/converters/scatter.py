"""Writing by index or mask: an array with some of its elements replaced or combined with others."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...building import GraphValue, is_float, NotSupportedError
from ..node import TorchNode
from .index import indexed_axes, row_numbers, together

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
    return _scattered(n, places, source, b.axis(n.plain("dim"), x.rank), how)


def index_written(n: TorchNode) -> GraphValue:
    """index_add, index_reduce: rows of `source` at `index` of one axis."""
    b, x, source = n.builder, n["self"], n["source"]
    axis = b.axis(n.plain("dim"), x.rank)
    alpha = n.plain("alpha", 1)
    source = source if alpha == 1 else source * float(alpha)
    dims = tuple(source.shape[axis] if i == axis else 1 for i in range(source.rank))
    where = b.expand(b.reshape(n["index"], dims), source.shape)
    return _scattered(n, where, source, axis, n.plain("reduce", "sum"))


def _scattered(
    n: TorchNode, places: GraphValue, source: GraphValue, axis: int, how: str | None
) -> GraphValue:
    """`self` with `source` at `places`, combined as `how` says; without `include_self`, of the elements that
    are written, what they were does not count.
    """
    b, x = n.builder, n["self"]
    if how not in _KINDS:
        raise NotSupportedError(f"a reduction by {how!r}")
    kind, source = _KINDS[how], b.cast(source, x.dtype)
    own = how is None or bool(n.plain("include_self", True))
    if how == "mean" and not is_float(x.dtype):
        raise NotSupportedError("the mean of whole numbers")

    def written(target: GraphValue, part: GraphValue, reduction: str) -> GraphValue:
        return b.op("scatter_elements", target, places, part, axis=axis, reduction=reduction)

    start = x
    if not own:
        start = written(x, b.full(places.shape, _neutral(kind, x.dtype), x.dtype), "none")
    out = written(start, source, kind)
    if how != "mean":
        return out
    counts = written(b.full(x.shape, float(own), x.dtype), b.full(places.shape, 1, x.dtype), "add")
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
    order, first = together(axes, x.rank)
    rows = row_numbers(n, tuple(x.shape[i] for i in axes), places)
    rest = [i for i in range(x.rank) if i not in axes]
    shape = (*(x.shape[i] for i in rest[:first]), *rows.shape, *(x.shape[i] for i in rest[first:]))
    values = b.expand(values, shape)
    # The axes of the indices, and those they stand for, go to the front.
    count = range(first, first + rows.rank)
    values = b.transpose(values, (*count, *(i for i in range(values.rank) if i not in count)))
    order = [*axes, *rest]
    turned = b.transpose(x, order)
    table = b.reshape(turned, (prod(turned.shape[: len(axes)]), prod(turned.shape[len(axes) :])))
    out = _rows_written(table, rows, values, bool(n.plain("accumulate", False)))
    return b.transpose(b.reshape(out, turned.shape), [order.index(i) for i in range(x.rank)])


def _rows_written(table: GraphValue, rows: GraphValue, values: GraphValue, adds: bool) -> GraphValue:
    """A table (K, B) with `values`, (..., B) in some shape, at the rows with these numbers."""
    b = table.builder
    flat = b.reshape(values, (rows.size, table.shape[1]))
    where = b.expand(b.reshape(rows, (rows.size, 1)), flat.shape)
    return b.op("scatter_elements", table, where, flat, axis=0, reduction="add" if adds else "none")


def put(n: TorchNode) -> GraphValue:
    """`source` at the numbers of elements of all."""
    b, x = n.builder, n["self"]
    rows = row_numbers(n, (x.size,), [n["index"]])
    values = b.cast(n["source"], x.dtype)
    out = _rows_written(b.reshape(x, (x.size, 1)), rows, values, bool(n.plain("accumulate", False)))
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
    rows, columns, *rest = turned.shape
    source = b.transpose(n["src"], (n["src"].rank - 1, *range(n["src"].rank - 1)))
    at = np.arange(source.shape[0]) * (columns + 1) + (offset if offset >= 0 else -offset * columns)
    table = b.reshape(turned, (rows * columns, prod(rest)))
    out = _rows_written(table, b.constant(at, np.int64), b.cast(source, x.dtype), False)
    return b.transpose(b.reshape(out, turned.shape), [order.index(i) for i in range(x.rank)])


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(("index_add", "index_reduce"), index_written),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), scatter),
    "diagonal_scatter": diagonal_written,
    "index_put": index_put,
    "masked_scatter": masked_scatter,
    "put": put,
}
