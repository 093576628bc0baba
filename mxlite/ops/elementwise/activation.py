"""Activations: functions of each element; `LeakyReLU` is in `leaky.py`."""

from __future__ import annotations

from typing import Any, Literal

from ...core.errors import OpAttributeError
from ...core.record import record
from .activation_formulas import Formula, FORMULAS
from .elementwise import Elementwise
from .leaky import LeakyReLU as LeakyReLU


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
    def slope(cls, w: Any, a: Any, x: Any) -> Any:
        return cls.formula(a).slope(w, x)


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
    at nan nan. Of -0.0 the result is 0.0 or -0.0."""

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
    def compute(cls, w: Any, a: Any, data: Any) -> Any:
        return {"out": w("softplus", data * w.constant(a.beta)) / w.constant(a.beta)}

    @classmethod
    def slope(cls, w: Any, a: Any, x: Any) -> Any:
        return -w("expm1", x * w.constant(-a.beta))


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
