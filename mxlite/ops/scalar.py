"""Arithmetic of an array and a number: what `a + 1` means.

The number takes the array's dtype; for whole-number arrays it is cut towards 0 first, as in MXNet.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.opdef import Op
from .blocks import pieces, weak


@dataclass(frozen=True)
class ScalarAttrs:
    """The number; `is_int` is written by newer files and changes nothing here."""

    scalar: float = 1.0
    is_int: bool = True


class _Scalar(Op):
    """One array and the attribute `scalar` to an array of the same shape and dtype."""

    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True
    cheap = True
    Attrs = ScalarAttrs


class _plus_scalar(_Scalar):
    """``out = data + scalar``. data: (...)  ->  out: (...). The gradient of `data` *is* that of `out`."""

    aliases = ("_PlusScalar",)
    gradient_is = {"data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.add(data, weak(data, a.scalar), out=out)


class _minus_scalar(_Scalar):
    """``out = data - scalar``. data: (...)  ->  out: (...). The gradient of `data` *is* that of `out`."""

    aliases = ("_MinusScalar",)
    gradient_is = {"data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.subtract(data, weak(data, a.scalar), out=out)


class _rminus_scalar(_Scalar):
    """``out = scalar - data``. data: (...)  ->  out: (...). Gradient ``-d_out``."""

    aliases = ("_RMinusScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.subtract(weak(data, a.scalar), data, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.negative(d_out, out=d_data)


class _mul_scalar(_Scalar):
    """``out = data * scalar``. data: (...)  ->  out: (...). Gradient ``d_out * scalar``."""

    aliases = ("_MulScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.multiply(data, weak(data, a.scalar), out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.multiply(d_out, a.scalar, out=d_data)


class _div_scalar(_Scalar):
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
        xp.divide(d_out, a.scalar, out=d_data)


class _rdiv_scalar(_Scalar):
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
        xp.divide(d_out, data, out=d_data)
        xp.divide(d_data, data, out=d_data)
        xp.multiply(d_data, -a.scalar, out=d_data)


class _power_scalar(_Scalar):
    """``out = data ** scalar``.

    data: (...)  ->  out: (...). Gradient ``d_out * scalar * data**(scalar - 1)``.
    """

    aliases = ("_PowerScalar",)
    backward_in_place = {"d_data": "data"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.power(data, weak(data, a.scalar), out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        if a.scalar == 2:
            xp.multiply(data, d_out, out=d_data)
        else:
            xp.power(data, a.scalar - 1, out=d_data)
            xp.multiply(d_data, d_out, out=d_data)
        xp.multiply(d_data, a.scalar, out=d_data)


class _rpower_scalar(_Scalar):
    """``out = scalar ** data``.

    data: (...)  ->  out: (...). Gradient ``d_out * out * log(scalar)``: `data` is not read.
    """

    aliases = ("_RPowerScalar",)
    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.power(weak(data, a.scalar), data, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)
        xp.multiply(d_data, float(xp.log(a.scalar)), out=d_data)


class _maximum_scalar(_Scalar):
    """``out = max(data, scalar)``.

    data: (...)  ->  out: (...). The gradient is `d_out` where ``data >= scalar``, 0 elsewhere.
    """

    aliases = ("_MaximumScalar",)
    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.maximum(data, weak(data, a.scalar), out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, x >= a.scalar, out=into)


class _minimum_scalar(_Scalar):
    """``out = min(data, scalar)``.

    data: (...)  ->  out: (...). The gradient is `d_out` where ``data <= scalar``, 0 elsewhere.
    """

    aliases = ("_MinimumScalar",)
    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.minimum(data, weak(data, a.scalar), out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, x <= a.scalar, out=into)


class _mod_scalar(_Scalar):
    """Remainder of ``data / scalar`` with the sign of `scalar`, as Python's ``%``; 0 where `scalar` is 0.

    data: (...)  ->  out: (...). The gradient of `data` *is* that of `out`.
    """

    aliases = ("_ModScalar",)
    gradient_is = {"data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        divisor = weak(data, a.scalar)
        if divisor == 0:
            out.fill(0)
        else:
            xp.remainder(data, divisor, out=out)


class _rmod_scalar(_Scalar):
    """Remainder of ``scalar / data`` with the sign of `data`, as Python's ``%``; 0 where `data` is 0.

    data: (...)  ->  out: (...). Gradient ``-d_out * floor(scalar / data)``.
    """

    aliases = ("_RModScalar",)
    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        for x, into in pieces(data, out):
            zero = x == 0
            xp.remainder(weak(data, a.scalar), x, out=into)
            xp.copyto(into, 0, where=zero)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = xp.floor_divide(a.scalar, x)
            xp.negative(slope, out=slope)
            xp.multiply(d, slope, out=into)


class _equal_scalar(_Scalar):
    """1 where ``data == scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_EqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.equal(data, weak(data, a.scalar), out=out)


class _not_equal_scalar(_Scalar):
    """1 where ``data != scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_NotEqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.not_equal(data, weak(data, a.scalar), out=out)


class _greater_scalar(_Scalar):
    """1 where ``data > scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_GreaterScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.greater(data, weak(data, a.scalar), out=out)


class _greater_equal_scalar(_Scalar):
    """1 where ``data >= scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_GreaterEqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.greater_equal(data, weak(data, a.scalar), out=out)


class _lesser_scalar(_Scalar):
    """1 where ``data < scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LesserScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.less(data, weak(data, a.scalar), out=out)


class _lesser_equal_scalar(_Scalar):
    """1 where ``data <= scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LesserEqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.less_equal(data, weak(data, a.scalar), out=out)
