"""Functions of each element: activations, roots, exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building import GraphValue, NotSupportedError
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
    if n.plain("scale", 1) != 1 or n.plain("input_scale", 1) != 1:
        raise NotSupportedError("elu with a scale of its own")
    return n.builder.op("LeakyReLU", n["self"], act_type="elu", slope=float(n.plain("alpha", 1.0)))


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
    n.ignore("other")  # the result's type is known
    return in_result_type(n)


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **{name: _unary(ours) for name, ours in _UNARY.items()},
    "_log_softmax": softmax,
    "_safe_softmax": safe_softmax,
    "_softmax": softmax,
    "_to_copy": converted,
    "alias": copy,
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
    "selu": selu,
    "softmax": softmax,
    "softplus": softplus,
    "threshold": threshold,
    "to": converted,
    "type_as": converted,
}
