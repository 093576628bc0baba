"""Reductions over axes, positions of extremes, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building.types import is_float
from ...building.value import GraphValue
from ..node import OnnxNode


def _over(n: OnnxNode) -> tuple[tuple[int, ...] | None, bool]:
    """(axes or None for all, keepdims). No axes at all mean all, or none if so asked."""
    axes = n.axes(1)
    if not axes:
        axes = () if n.flag("noop_with_empty_axes") else None
    return axes, n.flag("keepdims", True)


def _reduction(
    kind: str,
    before: Callable[[GraphValue], GraphValue] | None = None,
    after: Callable[[GraphValue], GraphValue] | None = None,
) -> Callable[[OnnxNode], GraphValue]:
    def convert(n: OnnxNode) -> GraphValue:
        axes, keepdims = _over(n)
        x = before(n[0]) if before else n[0]
        x = reduced(kind, x, axes, keepdims)
        return after(x) if after else x

    return convert


def reduced(kind: str, x: GraphValue, axes: tuple[int, ...] | None, keepdims: bool) -> GraphValue:
    """`Builder.reduce`, also of empty arrays and of types that mxlite's reductions do not take."""
    b = x.builder
    chosen = range(x.rank) if axes is None else [b.axis(i, x.rank) for i in axes]
    if 0 in (x.shape[i] for i in chosen):
        kept = tuple(1 if i in chosen else d for i, d in enumerate(x.shape))
        shape = kept if keepdims else tuple(d for i, d in enumerate(x.shape) if i not in chosen)
        return b.full(shape, _of_nothing(kind, x.dtype), x.dtype)
    if x.dtype == np.bool_:
        return b.cast(b.reduce(kind, b.cast(x, np.uint8), axes, keepdims), np.bool_)
    return b.reduce(kind, x, axes, keepdims)


def _of_nothing(kind: str, dtype: Any) -> Any:
    if kind in ("max", "min"):
        sign = -1 if kind == "max" else 1
        if is_float(dtype):
            return sign * np.inf
        if dtype == np.bool_:
            return kind == "min"
        return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max
    return {"sum": 0, "prod": 1, "mean": np.nan}[kind]


def _square(x: GraphValue) -> GraphValue:
    return x * x


def _abs(x: GraphValue) -> GraphValue:
    return x.builder.op("abs", x)


def _root(x: GraphValue) -> GraphValue:
    if is_float(x.dtype):
        return x.builder.op("sqrt", x)
    return x.builder.cast(x.builder.op("sqrt", x.builder.cast(x, np.float64)), x.dtype)


def _log(x: GraphValue) -> GraphValue:
    return x.builder.op("log", x)


def log_sum_exp(n: OnnxNode) -> GraphValue:
    """The largest is taken out first, so that nothing overflows."""
    b, x = n.builder, n[0]
    axes, keepdims = _over(n)
    chosen = range(x.rank) if axes is None else [b.axis(i, x.rank) for i in axes]
    if 0 in (x.shape[i] for i in chosen):
        return _log(reduced("sum", x, axes, keepdims))
    top = b.op("BlockGrad", b.reduce("max", x, axes)) if x.entry is not None else b.reduce("max", x, axes)
    total = _log(b.reduce("sum", b.op("exp", b.binary("sub", x, top)), axes)) + top
    shape = total.shape if keepdims else tuple(d for i, d in enumerate(x.shape) if i not in chosen)
    return b.reshape(total, shape)


def _arg(kind: str) -> Callable[[OnnxNode], GraphValue]:
    def convert(n: OnnxNode) -> GraphValue:
        b, x = n.builder, n[0]
        axis, keepdims = b.axis(n.whole("axis", 0), x.rank), n.flag("keepdims", True)
        last = n.version >= 12 and n.flag("select_last_index")
        source = b.op("reverse", x, axis=(axis,)) if last else x
        if source.dtype.kind in "iu" or source.dtype.itemsize < 4:
            source = b.cast(source, np.float64 if source.dtype.itemsize == 8 else np.float32)
        places = b.cast(b.op(kind, source, axis=axis, keepdims=True), np.int64)
        if last:
            places = b.reverse("sub", places, x.shape[axis] - 1)
        kept = places.shape
        return places if keepdims else b.reshape(places, kept[:axis] + kept[axis + 1 :])

    return convert


def _cumulative(kind: str) -> Callable[[OnnxNode], GraphValue]:
    def convert(n: OnnxNode) -> GraphValue:
        b, x = n.builder, n[0]
        axis = b.axis(int(n.known_number(1, "axis")), x.rank)
        return b.op(kind, x, axis=axis, exclusive=n.flag("exclusive"), reverse=n.flag("reverse"))

    return convert


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "CumProd": _cumulative("cumprod"),
    "CumSum": _cumulative("cumsum"),
    "ReduceL1": _reduction("sum", before=_abs),
    "ReduceL2": _reduction("sum", before=_square, after=_root),
    "ReduceLogSum": _reduction("sum", after=_log),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": _reduction("max"),
    "ReduceMean": _reduction("mean"),
    "ReduceMin": _reduction("min"),
    "ReduceProd": _reduction("prod"),
    "ReduceSum": _reduction("sum"),
    "ReduceSumSquare": _reduction("sum", before=_square),
}
