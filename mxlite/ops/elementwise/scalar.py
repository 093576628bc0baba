"""Arithmetic of an array and a number: the meaning of `a + 1`.

The number takes the array's dtype; for whole-number arrays it is cut towards 0 first, as in MXNet.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ...core.record import record
from ...graph.opdef import Op
from ..blocks import pieces, power, require_finite, weak


@record
class ScalarAttrs:
    """The number; `is_int` is written by newer files and changes nothing here."""

    scalar: float = 1.0
    is_int: bool = True


def log_of(scalar):
    """The natural logarithm of `scalar`: -inf at 0, nan below."""
    return math.log(scalar) if scalar > 0 else -math.inf if scalar == 0 else math.nan


class Scalar(Op):
    """Base: one array and the attribute `scalar` to an array of the same shape and dtype, by numpy's
    `function` unless `forward` says how.
    """

    abstract = True
    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True
    cheap = True
    accepts = "number"
    Attrs = ScalarAttrs

    function: ClassVar[str]
    any_scalar: ClassVar[bool] = False  # True if whole numbers may be combined with inf or nan

    @classmethod
    def infer_type(cls, a, *dtypes):
        if not cls.any_scalar:
            require_finite(a.scalar, dtypes[0], "scalar")
        return super().infer_type(a, *dtypes)

    @classmethod
    def forward(cls, xp, a, data, *, out):
        getattr(xp, cls.function)(data, weak(data, a.scalar), out=out)


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

    aliases = ("_RMinusScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.subtract(weak(data, a.scalar), data, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.negative(d_out, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.negative(heads["out"])}


class _mul_scalar(Scalar):
    """``out = data * scalar``. data: (...)  ->  out: (...). Gradient ``d_out * scalar``."""

    aliases = ("_MulScalar",)
    backward_in_place = {"d_data": "d_out"}
    function = "multiply"

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.multiply(d_out, weak(d_data, a.scalar), out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._mul_scalar(heads["out"], scalar=a.scalar)}


class _div_scalar(Scalar):
    """``out = data / scalar``; whole numbers are cut towards 0.

    data: (...)  ->  out: (...). Gradient ``d_out / scalar``.
    """

    aliases = ("_DivScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.divide(data, weak(data, a.scalar), out=out, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.divide(d_out, weak(d_data, a.scalar), out=d_data, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._div_scalar(heads["out"], scalar=a.scalar)}


class _rdiv_scalar(Scalar):
    """``out = scalar / data``; whole numbers are cut towards 0.

    data: (...)  ->  out: (...). Gradient ``-d_out * scalar / data**2``.
    """

    aliases = ("_RDivScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.divide(weak(data, a.scalar), data, out=out, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = xp.divide(-weak(data, a.scalar), x)
            xp.divide(slope, x, out=slope)
            xp.multiply(d, slope, out=into, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w._rdiv_scalar(w.square(ins["data"]), scalar=-a.scalar)
        return {"data": w.elemwise_mul(heads["out"], slope)}


class _power_scalar(Scalar):
    """``out = data ** scalar``.

    data: (...)  ->  out: (...). Gradient ``d_out * scalar * data**(scalar - 1)``.
    """

    aliases = ("_PowerScalar",)
    backward_in_place = {"d_data": "data"}

    @staticmethod
    def forward(xp, a, data, *, out):
        power(xp, data, weak(data, a.scalar), out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        if a.scalar == 2:
            xp.multiply(data, d_out, out=d_data)
        else:
            power(xp, data, weak(data, a.scalar) - 1, d_data)
            xp.multiply(d_data, d_out, out=d_data)
        xp.multiply(d_data, weak(data, a.scalar), out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w._power_scalar(ins["data"], scalar=a.scalar - 1)
        return {"data": w._mul_scalar(w.elemwise_mul(heads["out"], slope), scalar=a.scalar)}


class _rpower_scalar(Scalar):
    """``out = scalar ** data``.

    data: (...)  ->  out: (...). Gradient ``d_out * out * log(scalar)``: `data` is not read.
    """

    aliases = ("_RPowerScalar",)
    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        power(xp, weak(data, a.scalar), data, out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)
        xp.multiply(d_data, log_of(a.scalar), out=d_data, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        growth = w.elemwise_mul(heads["out"], outs["out"])
        return {"data": w._mul_scalar(growth, scalar=log_of(a.scalar))}


class _maximum_scalar(Scalar):
    """``out = max(data, scalar)``.

    data: (...)  ->  out: (...). The gradient is `d_out`, but 0 where ``data < scalar``.
    """

    aliases = ("_MaximumScalar",)
    backward_in_place = {"d_data": ("d_out", "data")}
    function = "maximum"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, ~(x < a.scalar), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        passes = w._rminus_scalar(w._lesser_scalar(ins["data"], scalar=a.scalar), scalar=1.0)
        return {"data": w.elemwise_mul(heads["out"], passes)}


class _minimum_scalar(Scalar):
    """``out = min(data, scalar)``.

    data: (...)  ->  out: (...). The gradient is `d_out`, but 0 where ``data > scalar``.
    """

    aliases = ("_MinimumScalar",)
    backward_in_place = {"d_data": ("d_out", "data")}
    function = "minimum"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, ~(x > a.scalar), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        passes = w._rminus_scalar(w._greater_scalar(ins["data"], scalar=a.scalar), scalar=1.0)
        return {"data": w.elemwise_mul(heads["out"], passes)}


class _hypot_scalar(Scalar):
    """``out = sqrt(data**2 + scalar**2)``, without overflow on the way.

    data: (...)  ->  out: (...). Gradient ``d_out * data / out``.
    """

    aliases = ("_HypotScalar",)
    accepts = "float"
    backward_in_place = {"d_data": ("d_out", "data", "out")}
    function = "hypot"

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        for d, x, y, into in pieces(d_out, data, out, d_data):
            xp.multiply(d, x / y, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.elemwise_div(ins["data"], outs["out"]))}


class smooth_l1(Scalar):
    """Huber's loss, quadratic near 0: ``(scalar*data)**2 / 2`` where ``|data| < 1 / scalar**2``, outside
    ``|data| - 1 / (2 * scalar**2)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * scalar**2 * data`` inside, and
    ``d_out * sign(data)`` outside. R. Girshick, 2015, "Fast R-CNN", with scalar 1.
    """

    accepts = "float"
    backward_in_place = {"d_data": ("d_out", "data")}

    @record
    class Attrs:
        scalar: float = 1.0

    @staticmethod
    def forward(xp, a, data, *, out):
        # With c = clip(s*s*x, -1, 1) it is c * (x - c / (2*s*s)) in every part.
        square = a.scalar * a.scalar
        if square == 0:  # quadratic everywhere, times 0
            out.fill(0)
            return
        for x, into in pieces(data, out):
            cut = _cut(xp, x, square)
            xp.multiply(cut, x - cut * (0.5 / square), out=into)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, _cut(xp, x, a.scalar * a.scalar), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w.clip(w._mul_scalar(ins["data"], scalar=a.scalar * a.scalar), a_min=-1, a_max=1)
        return {"data": w.elemwise_mul(heads["out"], slope)}


def _cut(xp, x, square):
    cut = x * square
    xp.maximum(cut, -1, out=cut)
    return xp.minimum(cut, 1, out=cut)
