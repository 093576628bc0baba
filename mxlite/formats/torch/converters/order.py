"""Sorting, elements by their rank, running extremes, places in a sorted sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue, is_float, NotSupportedError
from ..node import TorchNode
from .arithmetic import log_added


def top_k(n: TorchNode) -> tuple[GraphValue, ...]:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim", -1), x.rank)
    if n.plain("k") is None:
        n.ignore("stable")  # the order always is
        count, ascending = x.shape[axis], not n.plain("descending", False)
    else:
        n.ignore("sorted")
        count, ascending = n.plain("k"), not n.plain("largest", True)
    return b.ops("topk", x, axis=axis, k=count, ret_typ="both", is_ascend=ascending, dtype="int64")


def _line(n: TorchNode) -> tuple[GraphValue, int, bool]:
    """(data, axis, keepdims); of all elements without an axis."""
    b, x = n.builder, n["self"]
    if n.plain("dim") is None:
        return b.reshape(x, (x.size,)), 0, False
    return x, b.axis(n.plain("dim"), x.rank), bool(n.plain("keepdim", False))


def _results(n: TorchNode, axis: int, keep: bool, *found: GraphValue) -> Any:
    """Values and places, or the values alone where there is no axis."""
    shapes = (v.shape if keep else v.shape[:axis] + v.shape[axis + 1 :] for v in found)
    reshaped = tuple(n.builder.reshape(v, s) for v, s in zip(found, shapes))
    return reshaped[0] if n.plain("dim") is None and "kthvalue" not in n.target else reshaped


def ranked(n: TorchNode) -> Any:
    """kthvalue; median, the lower of two, which is nan if an element is."""
    b, (x, axis, keep) = n.builder, _line(n)
    length = x.shape[axis]
    k = n.plain("k", (length + 1) // 2)
    if not 1 <= k <= length:
        raise NotSupportedError(f"element {k} of {length}")
    first = b.ops("topk", x, axis=axis, k=k, ret_typ="both", is_ascend=True, dtype="int64")
    values, places = (b.slice(v, axis, k - 1, k) for v in first)
    if "median" in n.target and is_float(x.dtype):
        missing = b.cast(b.compare("not_equal", x, x), x.dtype)
        none = b.reduce("max", missing, [axis]) > 0.0
        values = b.where(none, b.full((), float("nan"), x.dtype), values)
    return _results(n, axis, keep, values, places)


def ranked_number(n: TorchNode) -> Any:
    """nanmedian: the lower median of what is a number."""
    b, (x, axis, keep) = n.builder, _line(n)
    if not is_float(x.dtype):
        return ranked(n)
    length = x.shape[axis]
    values, places = b.ops("topk", x, axis=axis, k=length, ret_typ="both", is_ascend=True, dtype="int64")
    counts = b.reduce("sum", b.cast(x.equals(x), np.int64), [axis])  # nan is the largest
    middle = b.op("take", b.constant(np.maximum(np.arange(length + 1) - 1, 0) // 2), counts, axis=0)
    found = (b.op("gather_elements", v, middle, axis=axis) for v in (values, places))
    return _results(n, axis, keep, *found)


def _shifted(x: GraphValue, axis: int, by: int, fill: Any) -> GraphValue:
    """`x` moved along an axis, the first places filled."""
    b = x.builder
    shape = (*x.shape[:axis], by, *x.shape[axis + 1 :])
    return b.concat([b.full(shape, fill, x.dtype), b.slice(x, axis, 0, x.shape[axis] - by)], axis)


def running_extreme(n: TorchNode) -> tuple[GraphValue, GraphValue]:
    """cummax and cummin, with the place of the last of equals, in log2(length) passes that look twice as far.

    A value's gradient goes to its place.
    """
    b, x = n.builder, n["self"]
    kind, worst = ("greater", -np.inf) if "cummax" in n.target else ("lesser", np.inf)
    if not is_float(x.dtype):
        raise NotSupportedError("running extremes of whole numbers")
    if not x.rank:
        return x, b.full((), 0, np.int64)
    axis = b.axis(n.plain("dim"), x.rank)
    length = x.shape[axis]
    at = np.arange(length).reshape(-1, *(1,) * (x.rank - 1 - axis))
    best, places, by = b.op("BlockGrad", x), b.expand(b.constant(at, np.int64), x.shape), 1
    while by < length:
        before = _shifted(best, axis, by, worst)
        better = b.compare(kind, before, best)
        missing = b.compare("not_equal", before, before)
        taken = b.cast(b.binary("maximum", b.cast(better, np.uint8), b.cast(missing, np.uint8)), np.bool_)
        best = b.where(taken, before, best)
        places = b.where(taken, _shifted(places, axis, by, 0), places)
        by *= 2
    return b.op("gather_elements", x, places, axis=axis), places


def running_log_sum(n: TorchNode) -> GraphValue:
    """logcumsumexp, in log2(length) passes that look twice as far."""
    b, x = n.builder, n["self"]
    axis, by = b.axis(n.plain("dim"), x.rank), 1
    while x.rank and by < x.shape[axis]:
        x = log_added(x, _shifted(x, axis, by, -np.inf))
        by *= 2
    return x


def searched(n: TorchNode) -> GraphValue:
    """searchsorted and bucketize: how many elements of the sequence are less, with `right` no greater.

    That is what is left of those that are not: nan stands behind all.
    """
    b = n.builder
    edges = n["boundaries" if n.plain("boundaries") is not None else "sorted_sequence"]
    x = n["self"]
    if n.plain("sorter") is not None:
        raise NotSupportedError("a sequence that a sorter puts in order")
    n.ignore("out_int32")  # the result's type is known
    right = n.plain("right", False) or n.plain("side") == "right"
    dtype = np.result_type(edges.dtype, x.dtype)
    edges, x = b.cast(edges, dtype), b.cast(x, dtype)
    rows = b.reshape(edges, (*edges.shape[:-1], 1, edges.shape[-1]) if edges.rank > 1 else edges.shape)
    behind = b.compare("greater" if right else "greater_equal", rows, b.reshape(x, (*x.shape, 1)))
    count = b.reduce("sum", b.cast(behind, np.int64), [-1], False)
    return b.cast(b.reverse("sub", count, edges.shape[-1]), n.dtype)


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(("cummax", "cummin"), running_extreme),
    **dict.fromkeys(("kthvalue", "median"), ranked),
    **dict.fromkeys(("sort", "topk"), top_k),
    **dict.fromkeys(("bucketize", "searchsorted"), searched),
    "logcumsumexp": running_log_sum,
    "nanmedian": ranked_number,
}
