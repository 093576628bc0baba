"""The functions of activation layers and their slopes, on flat parts of arrays.

A rule has the function, its gradient, and a flag that says if the gradient is taken from `out` (then `data`
may be overwritten, and a chain of layers keeps one array where it would keep two) or from `data`, if `out`
does not determine it (the function falls and rises). The scratch is `rows` (forward, backward) rows as long
as the parts, of their type. The result may alias any array that is read, so nothing is written to it before
all inputs are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...te.error_function import normal_values
from .error_function import SMALL

_ZEROS = 2048  # elements; numpy takes the maximum with an array faster than with a number
_ROOT = math.sqrt(2 / math.pi)
_CUBE = 0.044715

Function = Callable[[Any, Any, Any, Any, Any], None]
Gradient = Callable[[Any, Any, Any, Any, Any, Any], None]


@dataclass(frozen=True)
class Rule:
    """forward(xp, a, data, out, scratch); backward(xp, a, d_out, known, d_data, scratch)."""

    forward: Function
    backward: Gradient
    keeps: Literal["out", "data"]
    rows: tuple[int, int]


def _relu(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    if not data.size:
        return
    zeros = scratch[0][:_ZEROS]
    zeros.fill(0)
    whole = data.size - data.size % zeros.size
    rows = (-1, zeros.size)
    xp.maximum(data[:whole].reshape(rows), zeros, out=out[:whole].reshape(rows))
    xp.maximum(data[whole:], zeros[: data.size - whole], out=out[whole:])


def _relu_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    slope = scratch[0]  # 1 above 0, 0 at 0, nan at nan: a nan is passed on, as MXNet does
    xp.sign(out, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def sigmoid(xp: Any, data: Any, out: Any) -> None:
    """out = 1 / (1 + exp(-data)), also where they are one array."""
    xp.negative(data, out=out)
    with xp.errstate(over="ignore"):  # exp gives infinity, and 1 / infinity the right 0
        xp.exp(out, out=out)
    xp.add(out, 1, out=out)
    xp.divide(1, out, out=out)


def _sigmoid(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    sigmoid(xp, data, out)


def _sigmoid_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    slope = scratch[0]
    xp.subtract(1, out, out=slope)
    xp.multiply(slope, out, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _tanh(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    xp.tanh(data, out=out)


def _tanh_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    slope = scratch[0]
    xp.multiply(out, out, out=slope)
    xp.subtract(1, slope, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _log1p_exp(xp: Any, data: Any, out: Any, part: Any) -> None:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): no overflow, no digits lost."""
    xp.absolute(data, out=part)
    xp.negative(part, out=part)
    xp.exp(part, out=part)
    xp.log1p(part, out=part)
    xp.maximum(data, 0, out=out)
    xp.add(out, part, out=out)


def _softrelu(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    _log1p_exp(xp, data, out, scratch[0])


def _softrelu_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    # sigmoid(x) = 1 - exp(-out)
    slope = scratch[0]
    xp.negative(out, out=slope)
    xp.expm1(slope, out=slope)
    xp.negative(slope, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _softplus(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    x, part = scratch
    xp.multiply(data, a.beta, out=x)
    _log1p_exp(xp, x, x, part)
    xp.divide(x, a.beta, out=out)


def _softplus_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    slope = scratch[0]
    xp.multiply(out, -a.beta, out=slope)
    xp.expm1(slope, out=slope)
    xp.negative(slope, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _log_sigmoid(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    x, part = scratch
    xp.negative(data, out=x)
    _log1p_exp(xp, x, x, part)
    xp.negative(x, out=out)


def _log_sigmoid_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    # sigmoid(-x) = 1 - exp(out)
    slope = scratch[0]
    xp.expm1(out, out=slope)
    xp.negative(slope, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _softsign(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    below = scratch[0]
    xp.absolute(data, out=below)
    xp.add(below, 1, out=below)
    xp.divide(data, below, out=out)


def _softsign_gradient(xp: Any, a: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    # 1 / (1 + |x|)^2 = (1 - |out|)^2
    slope = scratch[0]
    xp.absolute(out, out=slope)
    xp.subtract(1, slope, out=slope)
    xp.multiply(slope, slope, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _silu(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    _sigmoid(xp, a, data, scratch[0], None)
    xp.multiply(data, scratch[0], out=out)


def _silu_gradient(xp: Any, a: Any, d_out: Any, data: Any, d_data: Any, scratch: Any) -> None:
    # s * (1 + x * (1 - s)), s = sigmoid(x)
    s, slope = scratch
    _sigmoid(xp, a, data, s, None)
    xp.subtract(1, s, out=slope)
    xp.multiply(slope, data, out=slope)
    xp.add(slope, 1, out=slope)
    xp.multiply(slope, s, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _mish(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    t, part = scratch
    _log1p_exp(xp, data, t, part)
    xp.tanh(t, out=t)
    xp.multiply(data, t, out=out)


def _mish_gradient(xp: Any, a: Any, d_out: Any, data: Any, d_data: Any, scratch: Any) -> None:
    # t + x * (1 - t^2) * sigmoid(x), t = tanh(log(1 + exp(x)))
    t, slope = scratch
    _log1p_exp(xp, data, t, slope)
    xp.tanh(t, out=t)
    xp.multiply(t, t, out=slope)
    xp.subtract(1, slope, out=slope)
    xp.multiply(slope, data, out=slope)
    _sigmoid_times(xp, data, slope)
    xp.add(slope, t, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _sigmoid_times(xp: Any, data: Any, x: Any) -> None:
    """x *= sigmoid(data), a short row at a time."""
    for i in range(0, data.size, _ZEROS):
        part = -data[i : i + _ZEROS]
        with xp.errstate(over="ignore"):
            xp.exp(part, out=part)
        xp.add(part, 1, out=part)
        xp.divide(x[i : i + _ZEROS], part, out=x[i : i + _ZEROS])


def _hard_swish(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    part = scratch[0]
    xp.add(data, 3, out=part)
    xp.clip(part, 0, 6, out=part)
    xp.multiply(part, 1 / 6, out=part)
    xp.multiply(data, part, out=out)


def _hard_swish_gradient(xp: Any, a: Any, d_out: Any, data: Any, d_data: Any, scratch: Any) -> None:
    # 0 up to -3, 1 from 3 on, x / 3 + 1/2 between
    slope, rest = scratch
    above = rest.view("bool")[: data.size]
    xp.multiply(data, 1 / 3, out=slope)
    xp.add(slope, 0.5, out=slope)
    xp.greater_equal(data, 3, out=above)
    xp.copyto(slope, 1, where=above)
    xp.less_equal(data, -3, out=above)
    xp.copyto(slope, 0, where=above)
    xp.multiply(d_out, slope, out=d_data)


def _normal(xp: Any, x: Any, out: Any) -> None:
    """out = the share of the normal distribution below x."""
    for i in range(0, x.size, SMALL):
        out[i : i + SMALL] = normal_values(xp, x[i : i + SMALL].astype("float64"), x.dtype.itemsize)


def _gelu(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    _normal(xp, data, scratch[0])
    xp.multiply(data, scratch[0], out=out)


def _gelu_gradient(xp: Any, a: Any, d_out: Any, data: Any, d_data: Any, scratch: Any) -> None:
    # Phi(x) + x * phi(x)
    slope, density = scratch
    _normal(xp, data, slope)
    xp.multiply(data, data, out=density)
    xp.multiply(density, -0.5, out=density)
    xp.exp(density, out=density)
    xp.multiply(density, 1 / math.sqrt(2 * math.pi), out=density)
    xp.multiply(density, data, out=density)
    xp.add(slope, density, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _gelu_tanh(xp: Any, a: Any, data: Any, out: Any, scratch: Any) -> None:
    t = scratch[0]
    _inner_tanh(xp, data, t)
    xp.add(t, 1, out=t)
    xp.multiply(t, 0.5, out=t)
    xp.multiply(data, t, out=out)


def _gelu_tanh_gradient(xp: Any, a: Any, d_out: Any, data: Any, d_data: Any, scratch: Any) -> None:
    # (1 + t) / 2 + x / 2 * (1 - t^2) * c * (1 + 3 * 0.044715 * x^2) = (1 + t) / 2 * (1 + x * (1 - t) * ...)
    t, slope = scratch
    _inner_tanh(xp, data, t)
    xp.multiply(data, data, out=slope)
    xp.multiply(slope, 3 * _CUBE * _ROOT, out=slope)
    xp.add(slope, _ROOT, out=slope)
    xp.multiply(slope, data, out=slope)
    xp.negative(t, out=t)
    xp.add(t, 1, out=t)
    xp.multiply(slope, t, out=slope)
    xp.add(slope, 1, out=slope)
    xp.subtract(2, t, out=t)
    xp.multiply(slope, t, out=slope)
    xp.multiply(slope, 0.5, out=slope)
    xp.multiply(d_out, slope, out=d_data)


def _inner_tanh(xp: Any, data: Any, t: Any) -> None:
    """tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))."""
    xp.multiply(data, data, out=t)
    xp.multiply(t, _CUBE, out=t)
    xp.add(t, 1, out=t)
    xp.multiply(t, data, out=t)
    xp.multiply(t, _ROOT, out=t)
    xp.tanh(t, out=t)


RULES: Mapping[str, Rule] = {
    "relu": Rule(_relu, _relu_gradient, "out", (1, 1)),
    "sigmoid": Rule(_sigmoid, _sigmoid_gradient, "out", (0, 1)),
    "tanh": Rule(_tanh, _tanh_gradient, "out", (0, 1)),
    "softrelu": Rule(_softrelu, _softrelu_gradient, "out", (1, 1)),
    "softplus": Rule(_softplus, _softplus_gradient, "out", (2, 1)),
    "softsign": Rule(_softsign, _softsign_gradient, "out", (1, 1)),
    "log_sigmoid": Rule(_log_sigmoid, _log_sigmoid_gradient, "out", (2, 1)),
    "silu": Rule(_silu, _silu_gradient, "data", (1, 2)),
    "mish": Rule(_mish, _mish_gradient, "data", (2, 2)),
    "hard_swish": Rule(_hard_swish, _hard_swish_gradient, "data", (1, 2)),
    "gelu": Rule(_gelu, _gelu_gradient, "data", (1, 2)),
    "gelu_tanh": Rule(_gelu_tanh, _gelu_tanh_gradient, "data", (1, 2)),
}
