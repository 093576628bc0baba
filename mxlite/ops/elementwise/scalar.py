"""Arithmetic of an array and a number: the meaning of `a + 1`.

The number takes the array's dtype; for whole-number arrays it is cut towards 0 first, as in MXNet.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ...core.record import record
from ...te.steps import STEPS
from ..blocks import require_finite, weak
from .elementwise import Elementwise


@record
class ScalarAttrs:
    """The number; `is_int` is written by newer files and changes nothing here."""

    scalar: float = 1.0
    is_int: bool = True


def number_of(w, a):
    """The number of the attributes, as an operand of the arrays' type."""
    return w.constant(a.scalar if w.dtype is None else weak(w, a.scalar))


def log_of(scalar):
    """The natural logarithm of `scalar`: -inf at 0, nan below."""
    return math.log(scalar) if scalar > 0 else -math.inf if scalar == 0 else math.nan


class Scalar(Elementwise):
    """Base: one array and the attribute `scalar` to an array of the same shape and dtype."""

    abstract = True
    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True
    accepts = "number"
    Attrs = ScalarAttrs
    any_scalar: ClassVar[bool] = False  # True if whole numbers may be combined with inf or nan

    @classmethod
    def infer_type(cls, a, *dtypes):
        if not cls.any_scalar:
            require_finite(a.scalar, dtypes[0], "scalar")
        return super().infer_type(a, *dtypes)

    @classmethod
    def called(cls, xp, a, data, *, out):
        getattr(xp, cls.function)(data, weak(data, a.scalar), out=out)

    @classmethod
    def stepped(cls, w, a, **inputs):
        return {"out": w(STEPS[cls.function], *inputs.values(), number_of(w, a))}


class _plus_scalar(Scalar):
    """``out = data + scalar``. data: (...)  ->  out: (...). The gradient of `data` *is* that of `out`."""

    aliases = ("_PlusScalar",)
    gradient_is = {"data": "d_out"}
    function = "add"


class _minus_scalar(Scalar):
    """``out = data - scalar``. data: (...)  ->  out: (...). The gradient of `data` *is* that of `out`."""

    aliases = ("_MinusScalar",)
    gradient_is = {"data": "d_out"}
    function = "subtract"


class _rminus_scalar(Scalar):
    """``out = scalar - data``. data: (...)  ->  out: (...). Gradient ``-d_out``."""

    backward_reads = ("d_out",)
    aliases = ("_RMinusScalar",)

    @staticmethod
    def compute(w, a, data):
        return {"out": number_of(w, a) - data}


class _mul_scalar(Scalar):
    """``out = data * scalar``. data: (...)  ->  out: (...). Gradient ``d_out * scalar``."""

    backward_reads = ("d_out",)
    aliases = ("_MulScalar",)
    function = "multiply"


class _div_scalar(Scalar):
    """``out = data / scalar``; whole numbers are cut towards 0.

    data: (...)  ->  out: (...). Gradient ``d_out / scalar``.
    """

    backward_reads = ("d_out",)
    aliases = ("_DivScalar",)

    @staticmethod
    def compute(w, a, data):
        return {"out": data / number_of(w, a)}


class _rdiv_scalar(Scalar):
    """``out = scalar / data``; whole numbers are cut towards 0.

    data: (...)  ->  out: (...). Gradient ``-d_out * scalar / data**2``.
    """

    backward_reads = ("d_out", "data")
    aliases = ("_RDivScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def compute(w, a, data):
        return {"out": number_of(w, a) / data}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": heads["out"] * -(number_of(w, a) / arrays["data"] / arrays["data"])}


def _exponent(w, a):
    return float(a.scalar if w.dtype is None else weak(w, a.scalar))


def _power(w, x, n):
    """x to the power n, which may be a few products and roots."""
    if -n in (1, 2, 3, 4, 0.5, 1.5):
        return 1 / _power(w, x, -n)
    if n in (1, 2, 3, 4):
        square = x * x
        return {1: x, 2: square, 3: square * x, 4: square * square}[int(n)]
    if n in (0.5, 1.5):
        # Unlike a root, the power of -0.0 is 0.0 and that of -inf is inf.
        root = w("select", w("eq", x, -math.inf), math.inf, w("sqrt", x + 0.0))
        return root if n == 0.5 else w("abs", x) * root
    return w("pow", x, w.constant(n))


class _power_scalar(Scalar):
    """``out = data ** scalar``.

    data: (...)  ->  out: (...). Gradient ``d_out * scalar * data**(scalar - 1)``.
    """

    backward_reads = ("d_out", "data")
    aliases = ("_PowerScalar",)
    backward_in_place = {"d_data": "data"}

    @staticmethod
    def compute(w, a, data):
        return {"out": _power(w, data, _exponent(w, a))}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": _power(w, arrays["data"], _exponent(w, a) - 1) * heads["out"] * number_of(w, a)}


class _rpower_scalar(Scalar):
    """``out = scalar ** data``.

    data: (...)  ->  out: (...). Gradient ``d_out * out * log(scalar)``: `data` is not read.
    """

    backward_reads = ("d_out", "out")
    aliases = ("_RPowerScalar",)

    @staticmethod
    def compute(w, a, data):
        return {"out": w("pow", number_of(w, a), data)}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": heads["out"] * arrays["out"] * w.constant(log_of(a.scalar))}


class _maximum_scalar(Scalar):
    """``out = max(data, scalar)``.

    data: (...)  ->  out: (...). The gradient is `d_out`, but 0 where ``data < scalar``.
    """

    backward_reads = ("d_out", "data")
    aliases = ("_MaximumScalar",)
    function = "maximum"


class _minimum_scalar(Scalar):
    """``out = min(data, scalar)``.

    data: (...)  ->  out: (...). The gradient is `d_out`, but 0 where ``data > scalar``.
    """

    backward_reads = ("d_out", "data")
    aliases = ("_MinimumScalar",)
    function = "minimum"


class _hypot_scalar(Scalar):
    """``out = sqrt(data**2 + scalar**2)``, without overflow on the way.

    data: (...)  ->  out: (...). Gradient ``d_out * data / out``.
    """

    backward_reads = ("d_out", "data", "out")
    aliases = ("_HypotScalar",)
    accepts = "float"
    function = "hypot"

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": heads["out"] * (arrays["data"] / arrays["out"])}


class smooth_l1(Scalar):
    """Huber's loss, quadratic near 0: ``(scalar*data)**2 / 2`` where ``|data| < 1 / scalar**2``, outside
    ``|data| - 1 / (2 * scalar**2)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * scalar**2 * data`` inside, and
    ``d_out * sign(data)`` outside. R. Girshick, 2015, "Fast R-CNN", with scalar 1.
    """

    backward_reads = ("d_out", "data")
    accepts = "float"

    @record
    class Attrs:
        scalar: float = 1.0

    @staticmethod
    def compute(w, a, data):
        if a.scalar == 0:  # quadratic everywhere, times 0
            return {"out": w.number(0.0)}
        # With c = clip(s*s*x, -1, 1) it is c * (x - c / (2*s*s)) in every part.
        cut = _cut(w, a, data)
        return {"out": cut * (data - cut * w.constant(0.5 / a.scalar**2))}

    @staticmethod
    def slope(w, a, x):
        return _cut(w, a, x)


def _cut(w, a, x):
    return w("min", w("max", x * w.constant(a.scalar**2), -1.0), 1.0)
