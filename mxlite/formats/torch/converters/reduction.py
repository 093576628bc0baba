"""Reductions over axes, positions of extremes, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...building import GraphValue
from ..node import TorchNode


def axes_of(n: TorchNode) -> tuple[list[int] | None, bool]:
    """(axes or None for all, keepdims)"""
    axes = n.plain("dim")
    axes = [axes] if isinstance(axes, int) else axes
    return (list(axes) if axes else None), bool(n.plain("keepdim", False))


def _reduction(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        b, x = n.builder, n["self"]
        return b.reduce(kind, b.cast(x, n.dtype), *axes_of(n))

    return convert


def _extreme(kind: str) -> Callable[[TorchNode], Any]:
    """max and min: of all, or along an axis with the places; of two tensors, of each pair."""

    def convert(n: TorchNode) -> Any:
        b, x = n.builder, n["self"]
        if n.plain("other") is not None:
            return b.binary("maximum" if kind == "max" else "minimum", x, n["other"])
        axes, keep = axes_of(n)
        values = b.reduce(kind, x, axes, keep)
        if axes is None or n.target.startswith(f"aten.a{kind}"):
            return values
        return values, _places(n, f"arg{kind}", x, axes[0], keep)

    return convert


def _places(n: TorchNode, kind: str, x: GraphValue, axis: int, keep: bool) -> GraphValue:
    b = n.builder
    axis = b.axis(axis, x.rank)
    places = b.cast(b.op(kind, x, axis=axis, keepdims=True), np.int64)
    return places if keep else b.reshape(places, x.shape[:axis] + x.shape[axis + 1 :])


def _place(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        x, axis = n["self"], n.plain("dim")
        if axis is None:
            return _places(n, kind, n.builder.reshape(x, (x.size,)), 0, False)
        return _places(n, kind, x, axis, bool(n.plain("keepdim", False)))

    return convert


def variance(n: TorchNode) -> Any:
    """var, std, var_mean, std_mean; `correction` is what the count is lessened by."""
    b, x = n.builder, n["self"]
    axes, keep = axes_of(n)
    correction = n.plain("correction")
    correction = int(n.plain("unbiased", True)) if correction is None else correction
    chosen = range(x.rank) if axes is None else axes
    count = prod(x.shape[i] for i in chosen)
    mean = b.reduce("mean", x, axes, True)
    total = b.reduce("sum", b.op("square", b.binary("sub", x, mean)), axes, keep)
    out = total * (1 / max(count - correction, 1e-30))
    out = b.op("sqrt", out) if n.target.startswith("aten.std") else out
    return (out, b.reduce("mean", x, axes, keep)) if "_mean" in n.target else out


def norm(n: TorchNode) -> GraphValue:
    """p-norms of vectors: p 1, 2 or infinite."""
    b, x = n.builder, n["self"]
    p = n.plain("p", n.plain("ord", 2))
    axes, keep = axes_of(n)
    if p == 2:
        return b.op("sqrt", b.reduce("sum", b.op("square", x), axes, keep))
    size = b.op("abs", x)
    if p == float("inf"):
        return b.reduce("max", size, axes, keep)
    total = b.reduce("sum", size if p == 1 else b.binary("power", size, float(p)), axes, keep)
    return total if p == 1 else b.binary("power", total, 1 / float(p))


def log_sum_exp(n: TorchNode) -> GraphValue:
    """The largest is taken out first, so that nothing overflows."""
    b, x = n.builder, n["self"]
    axes, keep = axes_of(n)
    top = b.op("BlockGrad", b.reduce("max", x, axes))
    total = b.binary("add", b.op("log", b.reduce("sum", b.op("exp", b.binary("sub", x, top)), axes)), top)
    return b.reshape(total, n.shape) if not keep else total


def cumulative(n: TorchNode) -> GraphValue:
    b, x = n.builder, n.builder.cast(n["self"], n.dtype)
    kind = "cumprod" if "cumprod" in n.target else "cumsum"
    return b.op(kind, x, axis=b.axis(n.plain("dim"), x.rank))


def _truth(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        b, x = n.builder, n["self"]
        true = b.cast(x if x.dtype == np.bool_ else b.compare("not_equal", x, 0), np.uint8)
        return b.cast(b.reduce(kind, true, *axes_of(n)), np.bool_)

    return convert


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **{name: _reduction(name) for name in ("sum", "mean", "prod")},
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), variance),
    "all": _truth("min"),
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "any": _truth("max"),
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
    "cumprod": cumulative,
    "cumsum": cumulative,
    "linalg_vector_norm": norm,
    "logsumexp": log_sum_exp,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "norm": norm,
}
