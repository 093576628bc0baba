"""Nonlinearities, softmax and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.value import GraphValue
from ..node import OnnxNode
from .elementwise import called


def relu(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    return b.op("relu", x) if x.dtype.kind == "f" else b.binary("maximum", x, 0)


def _negative_part(x: GraphValue) -> GraphValue:
    return x.builder.binary("minimum", x, 0)


def _positive_part(x: GraphValue) -> GraphValue:
    return x.builder.op("relu", x)


def celu(n: OnnxNode) -> GraphValue:
    x, alpha = n[0], n.real("alpha", 1.0)
    below = n.builder.op("expm1", _negative_part(x) * (1 / alpha)) * alpha
    return _positive_part(x) + below


def selu(n: OnnxNode) -> GraphValue:
    x, alpha, gamma = (
        n[0],
        n.real("alpha", 1.67326319217681884765625),
        n.real("gamma", 1.05070102214813232421875),
    )
    below = n.builder.op("expm1", _negative_part(x)) * alpha
    return (_positive_part(x) + below) * gamma


def prelu(n: OnnxNode) -> GraphValue:
    """The slope broadcasts to the data from the right; for (C, 1, 1) there is an operator."""
    b, x, slope = n.builder, n[0], n[1]
    if n.version < 7 and slope.rank == 1 and x.rank > 1:  # then a slope was one for each channel
        slope = b.reshape(slope, (slope.size, *(1,) * (x.rank - 2)))
    per_channel = (x.shape[1], *(1,) * (x.rank - 2)) if x.rank > 1 else None
    if slope.shape == per_channel and x.dtype == np.float32:
        return b.op("LeakyReLU", x, b.reshape(slope, (x.shape[1],)), act_type="prelu")
    if x.dtype.kind != "f":
        return b.where(x < 0, b.binary("mul", x, slope), x)
    return _positive_part(x) + b.binary("mul", _negative_part(x), slope)


def thresholded_relu(n: OnnxNode) -> GraphValue:
    x = n[0]
    return x * n.builder.cast(x > n.real("alpha", 1.0), x.dtype)


def shrink(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    bias, limit = n.real("bias", 0.0), n.real("lambd", 0.5)
    zero = b.full((), 0, x.dtype)
    return b.where(x < -limit, x + bias, b.where(x > limit, x - bias, zero))


def swish(n: OnnxNode) -> GraphValue:
    x, alpha = n[0], n.real("alpha", 1.0)
    if alpha == 1:
        return n.builder.op("silu", x)
    return x * n.builder.op("sigmoid", x * alpha)


def _rows(n: OnnxNode, apply: Callable[[GraphValue, int], GraphValue]) -> GraphValue:
    """Along an axis since opset 13; before, along all axes from `axis` on, seen as one."""
    b, x = n.builder, n[0]
    axis = n.whole("axis", -1 if n.version >= 13 else 1)
    if n.version >= 13:
        return apply(x, b.axis(axis, x.rank)) if x.rank else apply(b.reshape(x, (1,)), 0)
    axis = axis + x.rank if axis < 0 else axis
    if axis == x.rank - 1:
        return apply(x, axis)
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return b.reshape(apply(b.reshape(x, (rows, x.size // max(rows, 1))), 1), x.shape)


def _softmax(x: GraphValue, axis: int) -> GraphValue:
    b = x.builder
    if x.dtype == np.float16 and x.size:
        # Rounded after each step, as the standard's definition is: the results then agree to the last digit.
        powers = b.op("exp", b.binary("sub", x, b.reduce("max", x, [axis])))
        return b.binary("div", powers, b.reduce("sum", powers, [axis]))
    return b.op("softmax", x, axis=axis)


def log_softmax_along(x: GraphValue, axis: int) -> GraphValue:
    return x.builder.op("log_softmax", x, axis=axis)


def _hardmax(x: GraphValue, axis: int) -> GraphValue:
    b = x.builder
    places = b.op("argmax", b.cast(x, np.float32), axis=axis, keepdims=True)
    return b.cast(b.op("broadcast_equal", _positions(x, axis, places.dtype), places), x.dtype)


def _positions(x: GraphValue, axis: int, dtype: Any) -> GraphValue:
    count = x.shape[axis]
    return x.builder.constant(np.arange(count, dtype=dtype).reshape(count, *(1,) * (x.rank - 1 - axis)))


def dropout(n: OnnxNode) -> Any:
    """Asks at run time whether it trains, whichever mode the model was exported in, as batch normalization
    does; run as written, it drops if the model says so. Each run draws its own mask, so a seed is refused.
    """
    n.ignore("seed")
    b, x = n.builder, n[0]
    ratio = n.real("ratio", 0.5) if n.version < 12 else float(n.known_number(1, "ratio", 0.5))
    training = n.version >= 12 and bool(n.known_number(2, "training_mode", False))
    if not 0 <= ratio < 1 and ratio != 0:
        raise FormatError(f"ratio must be in [0, 1), got {ratio}.")
    if n.version < 7 and not n.whole("is_test", 0):
        training = True
    if training and ratio:
        if n.has("seed"):
            raise NotSupportedError("dropping out by the random numbers of a seed")
        mode = "always" if n.reader.as_written else "training"
        if n.wants(1):
            ones = b.op("Dropout", b.full(x.shape, 1, x.dtype), p=ratio, mode=mode)
            return b.binary("mul", x, ones), ones > 0
        return b.op("Dropout", x, p=ratio, mode=mode)
    kept = b.op("Dropout", x, p=ratio) if x.entry is not None and ratio else x
    mask = b.full(x.shape, True, np.bool_ if n.version >= 10 else x.dtype) if n.wants(1) else None
    return kept, mask


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "Celu": celu,
    "Dropout": dropout,
    "Elu": lambda n: n.builder.op("LeakyReLU", n[0], act_type="elu", slope=n.real("alpha", 1.0)),
    "Gelu": lambda n: n.builder.op("gelu", n[0], approximate=n.choice("approximate", "none", "tanh")),
    "HardSigmoid": lambda n: n.builder.op(
        "hard_sigmoid", n[0], alpha=n.real("alpha", 0.2), beta=n.real("beta", 0.5)
    ),
    "HardSwish": called("hard_swish"),
    "Hardmax": lambda n: _rows(n, _hardmax),
    "LeakyRelu": lambda n: n.builder.op("LeakyReLU", n[0], act_type="leaky", slope=n.real("alpha", 0.01)),
    "LogSoftmax": lambda n: _rows(n, log_softmax_along),
    "Mish": called("mish"),
    "PRelu": prelu,
    "Relu": relu,
    "Selu": selu,
    "Shrink": shrink,
    "Sigmoid": called("sigmoid"),
    "Softmax": lambda n: _rows(n, _softmax),
    "Softplus": called("softplus"),
    "Softsign": called("softsign"),
    "Swish": swish,
    "ThresholdedRelu": thresholded_relu,
}
