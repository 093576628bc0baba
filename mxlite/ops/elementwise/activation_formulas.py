"""The functions of activation layers and their slopes, as steps.

A slope is taken from `out`, where that determines it (then `data` may be overwritten, and a chain of layers
keeps one array where it would keep two), or from `data`, if the function falls and rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

_ROOT = math.sqrt(2 / math.pi)
_CUBE = 0.044715


class Formula(NamedTuple):
    """function(w, data); slope(w, x), of `out` or of `data`, as `reads` says."""

    function: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    reads: Literal["out", "data"]


def _squared(x: Any) -> Any:
    return x * x


def _silu_slope(w: Any, x: Any) -> Any:
    s = w("sigmoid", x)
    return ((1 - s) * x + 1) * s


def _mish_slope(w: Any, x: Any) -> Any:
    t = w("tanh", w("softplus", x))
    return t + (1 - t * t) * x * w("sigmoid", x)


def _hard_swish_slope(w: Any, x: Any) -> Any:
    inside = w("select", w("le", x, -3.0), 0.0, x * (1 / 3) + 0.5)
    return w("select", w("ge", x, 3.0), 1.0, inside)


def _gelu_slope(w: Any, x: Any) -> Any:
    return w("normal", x) + w("bell", x) * (1 / math.sqrt(2 * math.pi)) * x


def _gelu_tanh_share(w: Any, x: Any) -> Any:
    """(1 + tanh(y)) / 2 as sigmoid(2 y), which is accurate where tanh is near -1."""
    return w("sigmoid", (x * x * _CUBE + 1) * x * (2 * _ROOT))


def _gelu_tanh_slope(w: Any, x: Any) -> Any:
    s = _gelu_tanh_share(w, x)
    return ((x * x * (6 * _CUBE * _ROOT) + 2 * _ROOT) * x * (1 - s) + 1) * s


FORMULAS: Mapping[str, Formula] = {
    "relu": Formula(lambda w, x: w("max", x, 0.0), lambda w, y: w("sign", y), "out"),  # nan is passed on
    "sigmoid": Formula(lambda w, x: w("sigmoid", x), lambda w, y: (1 - y) * y, "out"),
    "tanh": Formula(lambda w, x: w("tanh", x), lambda w, y: 1 - y * y, "out"),
    "softrelu": Formula(lambda w, x: w("softplus", x), lambda w, y: -w("expm1", -y), "out"),
    "softsign": Formula(
        lambda w, x: x / (w("abs", x) + 1), lambda w, y: _squared(1 - w("abs", y)), "out"
    ),  # 1 / (1 + |x|)^2
    "log_sigmoid": Formula(lambda w, x: -w("softplus", -x), lambda w, y: -w("expm1", y), "out"),
    "silu": Formula(lambda w, x: x * w("sigmoid", x), _silu_slope, "data"),
    "mish": Formula(lambda w, x: x * w("tanh", w("softplus", x)), _mish_slope, "data"),
    "hard_swish": Formula(
        lambda w, x: x * (w("min", w("max", x + 3, 0.0), 6.0) * (1 / 6)), _hard_swish_slope, "data"
    ),
    "gelu": Formula(lambda w, x: x * w("normal", x), _gelu_slope, "data"),
    "gelu_tanh": Formula(lambda w, x: x * _gelu_tanh_share(w, x), _gelu_tanh_slope, "data"),
}
