"""Steps of arrays that take several calls of numpy, each into an array that is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .error_function import erf_values, normal_values


def _quotient(xp: Any, x: Any, y: Any, out: Any) -> None:
    """The quotient of whole numbers, cut towards 0; 0 where the divisor is."""
    divisor = xp.where(xp.equal(y, 0), 1, y)
    xp.divide(x, divisor, out=out, casting="unsafe")
    xp.copyto(out, 0, where=xp.equal(y, 0))


def _select(xp: Any, condition: Any, yes: Any, no: Any, out: Any) -> None:
    if no is not out:
        xp.copyto(out, no)
    xp.copyto(out, yes, where=condition)


def choose(xp: Any, span: Any, base: Any, condition: Any, yes: Any, no: Any, out: Any) -> None:
    """One of two numbers, without branches: with them an element takes 8 ns, whatever numpy function does it,
    where conditions are random.
    """
    if span != 1:
        xp.multiply(condition, span, out=out)
    elif condition is not out:
        xp.copyto(out, condition)
    if base:
        xp.add(out, base, out=out)


def _rsqrt(xp: Any, x: Any, out: Any) -> None:
    xp.sqrt(x, out=out)
    xp.divide(1, out, out=out)


def _sigmoid(xp: Any, x: Any, out: Any) -> None:
    """1 / (1 + exp(-x)): exp gives infinity for what is far below 0, and 1 / infinity the right 0."""
    xp.negative(x, out=out)
    xp.exp(out, out=out)
    xp.add(out, 1, out=out)
    xp.divide(1, out, out=out)


def _softplus(xp: Any, x: Any, out: Any) -> None:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""
    above = xp.maximum(x, 0)
    xp.absolute(x, out=out)
    xp.negative(out, out=out)
    xp.exp(out, out=out)
    xp.log1p(out, out=out)
    xp.add(out, above, out=out)


def _bell(xp: Any, x: Any, out: Any) -> None:
    xp.multiply(x, x, out=out)
    xp.multiply(out, -0.5, out=out)
    xp.exp(out, out=out)


def _by_parts(values: Callable[..., Any], xp: Any, x: Any, out: Any) -> None:
    """values(xp, x, bytes of a number), which has several temporaries of float64, for short parts of x."""
    if out.ndim and out.shape[-1] < out.size:
        for part, into in zip(xp.broadcast_to(x, out.shape), out):
            _by_parts(values, xp, part, into)
        return
    x, out = xp.broadcast_to(x, out.shape).reshape(-1), out.reshape(-1)
    for i in range(0, out.size, _SHORT):
        out[i : i + _SHORT] = values(xp, x[i : i + _SHORT].astype("float64"), out.dtype.itemsize)


def _same(xp: Any, x: Any, out: Any) -> None:
    xp.copyto(out, x)


_SHORT = 1024  # elements: some eight temporaries of 8 KiB
OWN: Mapping[str, Callable[..., None]] = {
    "select": _select,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "bell": _bell,
    "erf": partial(_by_parts, erf_values),
    "normal": partial(_by_parts, normal_values),
}
"""Steps that are computed into an array by several calls, without temporaries."""
OF_WHOLE: Mapping[str, Callable[..., None]] = {
    "div": _quotient, "trunc": _same, "floor": _same, "ceil": _same
}  # fmt: skip
"""Steps that are others for whole numbers."""
