"""Functions of each element: activations, roots, exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building import GraphValue, is_float
from ...building.rounding import rounded
from ..node import TorchNode
from .arithmetic import in_result_type

_UNARY = {
    "abs": "abs", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atanh": "arctanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh",
    "digamma": "digamma", "erf": "erf", "erfinv": "erfinv", "exp": "exp", "expm1": "expm1",
    "floor": "floor", "lgamma": "gammaln", "log": "log", "log10": "log10", "log1p": "log1p", "log2": "log2",
    "log_sigmoid": "log_sigmoid", "mish": "mish", "neg": "negative", "reciprocal": "reciprocal",
    "relu": "relu", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sign": "sign", "silu": "silu", "sin": "sin",
    "sinh": "sinh", "softsign": "softsign", "sqrt": "sqrt", "square": "square", "tan": "tan", "tanh": "tanh",
    "trunc": "trunc",
}  # fmt: skip


def _unary(name: str) -> Callable[[TorchNode], GraphValue]:
    return lambda n: n.builder.op(name, in_result_type(n))


def gelu(n: TorchNode) -> GraphValue:
    return n.builder.op("gelu", n["self"], approximate=n.plain("approximate", "none"))


def hard_sigmoid(n: TorchNode) -> GraphValue:
    """relu6(x + 3) / 6"""
    return n.builder.op("hard_sigmoid", n["self"], alpha=1 / 6, beta=0.5)


def hard_tanh(n: TorchNode) -> GraphValue:
    if "relu6" in n.target:
        return n.builder.op("clip", n["self"], a_min=0.0, a_max=6.0)
    low, high = float(n.plain("min_val", -1)), float(n.plain("max_val", 1))
    return n.builder.op("clip", n["self"], a_min=low, a_max=high)


def leaky_relu(n: TorchNode) -> GraphValue:
    return n.builder.op(
        "LeakyReLU", n["self"], act_type="leaky", slope=float(n.plain("negative_slope", 0.01))
    )


def elu(n: TorchNode) -> GraphValue:
    """scale * (x if x > 0 else alpha (exp(input_scale x) - 1)); celu's scales are of this kind."""
    b, x = n.builder, n["self"]
    scale, inner = float(n.plain("scale", 1)), float(n.plain("input_scale", 1))
    out = b.op(
        "LeakyReLU", x * inner if inner != 1 else x, act_type="elu", slope=float(n.plain("alpha", 1.0))
    )
    if inner != 1:
        out = b.where(x > 0.0, x, out)
    return out if scale == 1 else out * scale


def random_relu(n: TorchNode) -> GraphValue:
    """rrelu: slopes are drawn while it trains; afterwards, or where the module never trains, their mean."""
    x, low, high = n["self"], float(n.plain("lower", 1 / 8)), float(n.plain("upper", 1 / 3))
    if not n.plain("training", False) or low == high:
        return n.builder.op("LeakyReLU", x, act_type="leaky", slope=(low + high) / 2)
    return n.builder.op("LeakyReLU", x, act_type="rrelu", lower_bound=low, upper_bound=high)


def selu(n: TorchNode) -> GraphValue:
    return n.builder.op("LeakyReLU", n["self"], act_type="selu")


def prelu(n: TorchNode) -> GraphValue:
    """One slope for each channel."""
    b, x, weight = n.builder, n["self"], n["weight"]
    if weight.size == 1:
        channels = x.shape[1] if x.rank > 1 else 1
        weight = b.expand(weight, (channels,))
    return b.op("LeakyReLU", x, weight, act_type="prelu")


_SATURATED = 20
"""From here on log(1 + exp(x)) is x in float32."""


def softplus(n: TorchNode) -> GraphValue:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
    b, x, beta = n.builder, n["self"], float(n.plain("beta", 1.0))
    threshold = float(n.plain("threshold", _SATURATED))
    out = b.op("softplus", x) if beta == 1 else b.op("softplus", x * beta) * (1 / beta)
    return out if threshold >= _SATURATED else b.where(x * beta > threshold, x, out)


def rounded_to(n: TorchNode) -> GraphValue:
    """The nearest numbers with `decimals` digits behind the point; halves go to the even one."""
    x, decimals = n["self"], int(n.plain("decimals", 0))
    if decimals == 0:
        return rounded(x)
    b, scale = n.builder, float(10 ** abs(decimals))
    return (
        b.binary("div", rounded(x * scale), scale)
        if decimals > 0
        else rounded(b.binary("div", x, scale)) * scale
    )


def safe_softmax(n: TorchNode) -> GraphValue:
    """softmax, and 0 with gradient 0 along an axis where all numbers are minus infinity."""
    b, x = n.builder, in_result_type(n)
    axis = b.axis(n.plain("dim"), x.rank)
    empty = b.reduce("max", x, [axis]).equals(float("-inf"))
    zero = b.full((), 0, x.dtype)
    return b.where(empty, zero, b.op("softmax", b.where(empty, zero, x), axis=axis))


def glu(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim", -1), x.rank)
    left, right = b.ops("SliceChannel", x, num_outputs=2, axis=axis)
    return b.binary("mul", left, b.op("sigmoid", right))


def threshold(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    above = x > float(n.plain("threshold"))
    return b.where(above, x, b.full((), float(n.plain("value")), x.dtype))


def dropout(n: TorchNode) -> GraphValue:
    """Asks at run time whether it trains; dropped already here where the module itself never drops."""
    x, p = n["input"], float(n.plain("p", 0.5))
    if not n.plain("train", True) or p == 0:
        return x
    axes = tuple(range(2, x.rank)) if "feature_dropout" in n.target else ()
    return n.builder.op("Dropout", x, p=p, axes=axes)


_FLOOR = -1.7580993408473766
"""The limit of selu, which alpha dropout puts in the place of what it drops."""


def alpha_dropout(n: TorchNode) -> GraphValue:
    """Dropout to selu's floor, then scaled and shifted so that mean and variance stay; the data itself where
    nothing is dropped.
    """
    b, x, p = n.builder, n["input"], float(n.plain("p", 0.5))
    if not n.plain("train", False) or p in (0.0, 1.0):
        return x if p != 1 or not n.plain("train", False) else x * 0.0
    each = (*x.shape[:2], *(1,) * (x.rank - 2)) if "feature" in n.target else x.shape
    drawn = b.op("Dropout", b.full(each, 1, x.dtype), p=p)  # 0 or 1 / (1 - p); after training 1
    scale = ((_FLOOR**2 * p + 1) * (1 - p)) ** -0.5
    shift = -scale * _FLOOR * p
    kept = b.where(drawn > 0.0, x, b.full((), _FLOOR, x.dtype))
    return b.where(drawn.equals(1.0), x, kept * scale + shift)


def native_dropout(n: TorchNode) -> tuple[Any, ...]:
    return dropout(n), None


def softmax(n: TorchNode) -> GraphValue:
    b, x = n.builder, in_result_type(n)
    kind = "log_softmax" if "log_softmax" in n.target else "softmax"
    return b.op(kind, x, axis=b.axis(n.plain("dim"), x.rank))


def copy(n: TorchNode) -> GraphValue:
    """The result is the operand: copies and layouts are the planner's own affair."""
    return n["self"]


def detached(n: TorchNode) -> GraphValue:
    x = n["self"]
    return x if x.array is not None else n.builder.op("BlockGrad", x)


def converted(n: TorchNode) -> GraphValue:
    """In another type, which the result says; whole numbers have no gradient."""
    n.ignore("other")
    x = n["self"]
    if x.array is None and is_float(x.dtype) and not is_float(n.dtype):
        x = n.builder.op("BlockGrad", x)
    return n.builder.cast(x, n.dtype)


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **{name: _unary(ours) for name, ours in _UNARY.items()},
    "_log_softmax": softmax,
    "_safe_softmax": safe_softmax,
    "_softmax": softmax,
    "_to_copy": converted,
    "alias": copy,
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), alpha_dropout),
    "positive": copy,
    "clone": copy,
    "contiguous": copy,
    "detach": detached,
    "detach_": detached,
    "dropout": dropout,
    "erfc": lambda n: n.builder.reverse("sub", n.builder.op("erf", n["self"]), 1.0),
    "exp2": lambda n: n.builder.reverse("power", n["self"], 2.0),
    "elu": elu,
    "feature_dropout": dropout,
    "gelu": gelu,
    "glu": glu,
    "hardsigmoid": hard_sigmoid,
    "hardswish": lambda n: n.builder.op("hard_swish", n["self"]),
    "hardtanh": hard_tanh,
    "leaky_relu": leaky_relu,
    "lift_fresh_copy": copy,
    "log_softmax": softmax,
    "native_dropout": native_dropout,
    "prelu": prelu,
    "relu6": hard_tanh,
    "round": rounded_to,
    "rrelu": random_relu,
    "selu": selu,
    "signbit": lambda n: n["self"] < 0,
    "softmax": softmax,
    "softplus": softplus,
    "special_ndtri": lambda n: n.builder.op("erfinv", n["self"] * 2.0 - 1.0) * 2**0.5,
    "threshold": threshold,
    "to": converted,
    "type_as": converted,
}
