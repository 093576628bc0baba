"""Reductions over axes, positions of extremes, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...building import GraphValue, is_float
from ..node import TorchNode


def axes_of(n: TorchNode) -> tuple[list[int] | None, bool]:
    """(axes or None for all, keepdims)"""
    axes = n.plain("dim")
    axes = [axes] if isinstance(axes, int) else axes
    return (list(axes) if axes and n["self"].rank else None), bool(n.plain("keepdim", False))


def _reduction(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        b, x = n.builder, n["self"]
        return b.reduce(kind, b.cast(x, n.dtype), *axes_of(n))

    return convert


def product(n: TorchNode) -> GraphValue:
    """prod, whose gradient is right where an element is 0: there it is the product of the others.

    The operator's own, as in MXNet, is the product divided by the element.
    """
    b, x = n.builder, n.builder.cast(n["self"], n.dtype)
    axes, keep = axes_of(n)
    if not is_float(x.dtype):
        return b.reduce("prod", x, axes, keep)
    zero, one, none = x.equals(0), b.full((), 1, x.dtype), b.full((), 0, x.dtype)
    others = b.reduce("prod", b.where(zero, one, x), axes, keep)
    count = b.reduce("sum", b.cast(zero, x.dtype), axes, keep)
    single = b.reduce("sum", b.where(zero, x, none), axes, keep)  # 0, but for its gradient
    out = b.where(count.equals(0), others, none)
    return b.binary(
        "add", out, b.where(count.equals(1), b.binary("mul", b.op("BlockGrad", others), single), none)
    )


def _extreme(kind: str) -> Callable[[TorchNode], Any]:
    """max and min: of all, or along an axis with the places; of two tensors, of each pair."""

    def convert(n: TorchNode) -> Any:
        b, x = n.builder, n["self"]
        if n.plain("other") is not None:
            return b.binary("maximum" if kind == "max" else "minimum", x, n["other"])
        axes, keep = axes_of(n)
        values = b.reduce(kind, x, axes, keep)
        if n.plain("dim") is None or n.target.startswith(f"aten.a{kind}"):
            return values
        if axes is None:
            return values, b.full((), 0, np.int64)
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
    freedom = prod(x.shape[i] for i in chosen) - correction
    mean = b.reduce("mean", x, axes, True)
    total = b.reduce("sum", b.op("square", b.binary("sub", x, mean)), axes, keep)
    out = total * (1 / freedom if freedom > 0 else float("inf"))  # 0 / 0 is no number
    out = b.op("sqrt", out) if n.target.startswith("aten.std") else out
    return (out, b.reduce("mean", x, axes, keep)) if "_mean" in n.target else out


def norm(n: TorchNode) -> GraphValue:
    """p-norms of vectors; dist: of the difference of two tensors."""
    b, x = n.builder, n["self"]
    if n.plain("other") is not None:
        x = b.binary("sub", x, n["other"])
    return length(x, float(n.plain("p", n.plain("ord", 2))), *axes_of(n))


def length(x: GraphValue, p: float, axes: list[int] | None, keep: bool) -> GraphValue:
    """The p-norm over some axes; a length of 0 has the gradient 0."""
    b = x.builder
    if p == 2 and x.rank:
        return b.reduce("norm", x, axes, keep)
    if p == 0:
        return b.reduce("sum", b.cast(b.compare("not_equal", x, 0), x.dtype), axes, keep)
    size = b.op("abs", x)
    if p in (float("inf"), float("-inf")):
        return b.reduce("max" if p > 0 else "min", size, axes, keep)
    if p == 1:
        return b.reduce("sum", size, axes, keep)
    return _power(b.reduce("sum", _power(size, p), axes, keep), 1 / p)


def _power(x: GraphValue, exponent: float) -> GraphValue:
    """x ** exponent for x >= 0; below exponent 1 the slope at 0 is 0 instead of infinite."""
    b = x.builder
    if exponent >= 1 or exponent < 0:
        return b.binary("power", x, exponent)
    zero = x.equals(0)
    root = b.binary("power", b.where(zero, b.full((), 1, x.dtype), x), exponent)
    return b.where(zero, b.full((), 0, x.dtype), root)


def _nan_reduction(kind: str) -> Callable[[TorchNode], GraphValue]:
    """nansum, nanmean: over what is a number."""

    def convert(n: TorchNode) -> GraphValue:
        b, x = n.builder, n.builder.cast(n["self"], n.dtype)
        missing = b.compare("not_equal", x, x)
        axes, keep = axes_of(n)
        total = b.reduce("sum", b.where(missing, b.full((), 0, x.dtype), x), axes, keep)
        if kind == "sum":
            return total
        return b.binary("div", total, b.reduce("sum", b.cast(x.equals(x), x.dtype), axes, keep))

    return convert


def log_sum_exp(n: TorchNode) -> GraphValue:
    """The largest is taken out first, so that nothing overflows."""
    b, x = n.builder, n["self"]
    axes, keep = axes_of(n)
    top = b.op("BlockGrad", b.reduce("max", x, axes))
    top = b.where(b.op("abs", top).equals(float("inf")), b.full((), 0, x.dtype), top)
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
    **{name: _reduction(name) for name in ("sum", "mean")},
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), variance),
    "all": _truth("min"),
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "any": _truth("max"),
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
    "nanmean": _nan_reduction("mean"),
    "nansum": _nan_reduction("sum"),
    "cumprod": cumulative,
    "cumsum": cumulative,
    "dist": norm,
    "linalg_vector_norm": norm,
    "logsumexp": log_sum_exp,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "norm": norm,
    "prod": product,
}
