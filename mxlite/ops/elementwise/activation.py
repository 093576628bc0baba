"""Activations: functions of each element; `LeakyReLU` is in `leaky.py`.

A slope is taken from `out`, where that determines it (then `data` may be overwritten, and a chain of layers
keeps one array where it would keep two), or from `data`, if the function falls and rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ...core.errors import OpAttributeError
from ...core.record import record
from .elementwise import Elementwise

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


class _Activation(Elementwise):
    """Base: one array in, one of the same shape out, the gradient from `out` or from `data`."""

    abstract = True
    inputs = ("data",)
    same_shape = True
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}

    @classmethod
    def formula(cls, a: Any) -> Formula:
        return FORMULAS[cls.op_name]

    @classmethod
    def compute(cls, w: Any, a: Any, data: Any) -> Any:
        return {"out": cls.formula(a).function(w, data)}

    @classmethod
    def compute_gradient(
        cls, w: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        formula = cls.formula(a)
        return {"d_data": heads["out"] * formula.slope(w, arrays[formula.reads])}


class Activation(_Activation):
    """The function `act_type` of each element.

    data: (...)  ->  out: (...).  relu: max(x, 0); sigmoid: 1 / (1 + exp(-x)); tanh; softrelu: log(1 +
    exp(x)); softsign: x / (1 + |x|). relu's gradient at 0 is 0, at nan nan. MXNet 1.9.1 has these; later ones
    have log_sigmoid: log(sigmoid(x)), and mish: x * tanh(log(1 + exp(x))), too.
    """

    backward_reads = ("d_out", "data", "out")

    @record
    class Attrs:
        act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh", "log_sigmoid", "mish"]

    @classmethod
    def formula(cls, a: Any) -> Formula:
        return FORMULAS[a.act_type]

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset({"data", "out"} - {FORMULAS[a.act_type].reads})


class relu(_Activation):
    """Rectified linear unit, ``out = max(data, 0)``. data: (...)  ->  out: (...). The gradient at 0 is 0,
    at nan nan. Of -0.0 the result is 0.0 or -0.0. Whole numbers are taken, too."""

    accepts = "number"
    backward_reads = ("d_out", "out")


class sigmoid(_Activation):
    """Logistic function, ``out = 1 / (1 + exp(-data))``. data: (...)  ->  out: (...)."""

    backward_reads = ("d_out", "out")


class tanh(_Activation):
    """Hyperbolic tangent. data: (...)  ->  out: (...)."""

    backward_reads = ("d_out", "out")


class log_sigmoid(_Activation):
    """Logarithm of the logistic function, ``out = -log(1 + exp(-data))``. data: (...)  ->  out: (...)."""

    backward_reads = ("d_out", "out")


class silu(_Activation):
    """Sigmoid-weighted linear unit, ``out = data / (1 + exp(-data))``. data: (...)  ->  out: (...).

    S. Elfwing, E. Uchibe, K. Doya, 2018, "Sigmoid-weighted linear units for neural network function
    approximation in reinforcement learning".
    """

    aliases = ("swish",)
    backward_reads = ("d_out", "data")


class mish(_Activation):
    """``out = data * tanh(log(1 + exp(data)))``. data: (...)  ->  out: (...).

    D. Misra, 2019, "Mish: a self regularized non-monotonic activation function".
    """

    backward_reads = ("d_out", "data")


class hard_swish(_Activation):
    """``out = data * min(max(data + 3, 0), 6) / 6``. data: (...)  ->  out: (...).

    A. Howard et al., 2019, "Searching for MobileNetV3". The gradient at -3 is 0, at 3 it is 1.
    """

    backward_reads = ("d_out", "data")


class softplus(_Activation):
    """A smooth rectifier, ``out = log(1 + exp(beta * data)) / beta``. data: (...)  ->  out: (...).

    Computed without overflow whatever the data: PyTorch's `threshold` is not needed.
    """

    backward_reads = ("d_out", "out")

    @record
    class Attrs:
        beta: float = 1.0

        def __post_init__(self) -> None:
            if not self.beta > 0:
                raise OpAttributeError(f"beta must be above 0, got {self.beta}.")

    @classmethod
    def formula(cls, a: Any) -> Formula:
        return Formula(
            lambda w, x: w("softplus", x * w.constant(a.beta)) / w.constant(a.beta),
            lambda w, y: -w("expm1", y * w.constant(-a.beta)),
            "out",
        )


class gelu(_Activation):
    """Gaussian error linear unit, ``out = data * Phi(data)``. data: (...)  ->  out: (...).

    Phi is the normal distribution function, or with `approximate='tanh'` the near
    ``(1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``, which is about four times as fast.
    D. Hendrycks, K. Gimpel, 2016, "Gaussian error linear units".
    """

    flops_per_input = 10
    backward_reads = ("d_out", "data")

    @record
    class Attrs:
        approximate: Literal["none", "tanh"] = "none"

    @classmethod
    def formula(cls, a: Any) -> Formula:
        return FORMULAS["gelu" if a.approximate == "none" else "gelu_tanh"]
