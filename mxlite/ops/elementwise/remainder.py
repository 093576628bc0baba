"""Remainders of divisions: of two arrays, with broadcasting, and of an array and a number.

Of whole numbers a remainder has no slope: all its gradients are 0, as in MXNet.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ..blocks import copy, fold, pieces, sum_to, weak
from .broadcast import BroadcastProduct
from .scalar import Scalar


def _are_whole(x):
    return x.dtype.kind in "iu"


def _of_real(w, d):
    """The gradient `d` of real numbers, 0 of whole ones: for these a factor of 0.5 is cut to 0."""
    return w._mul_scalar(w._mul_scalar(d, scalar=0.5), scalar=2.0)


class _Remainder(BroadcastProduct):
    """Base: ``lhs - rhs * q``, where q is the quotient rounded by the operator `rounding`."""

    abstract = True
    in_place = {"out": "lhs"}
    rounding: ClassVar[str]

    @staticmethod
    def quotient(xp, lhs, rhs, out):
        """``out = q``"""
        raise NotImplementedError

    @classmethod
    def backward(cls, xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def by_rhs(into, d, x, y):
            cls.quotient(xp, x, y, into)
            xp.multiply(into, d, out=into)
            xp.negative(into, out=into)

        if _are_whole(d_out):
            for slope in (d_lhs, d_rhs):
                if slope is not None:
                    slope.fill(0)
            return
        if d_lhs is not None:
            sum_to(xp, d_out, d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, rhs), d_rhs, work)

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        d, lhs, rhs = _of_real(w, heads["out"]), ins["lhs"], ins["rhs"]
        count = getattr(w, cls.rounding)(w.broadcast_div(lhs, rhs))
        return {"lhs": w._sum_like(d, lhs), "rhs": w.negative(w._sum_like(w.elemwise_mul(d, count), rhs))}


class broadcast_mod(_Remainder):
    """Remainder of ``lhs / rhs`` with the sign of `rhs`, as Python's ``%``; 0 where `rhs` is 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * floor(lhs / rhs)``; 0 for whole numbers.
    """

    aliases = ("_mod", "_Mod")
    rounding = "floor"

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return prod(inputs[1])

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out, work):  # type: ignore[override]  # a service more
        zero = work[: rhs.size].view("bool").reshape(rhs.shape)
        xp.equal(rhs, 0, out=zero)
        xp.remainder(lhs, rhs, out=out)
        xp.copyto(out, 0, where=zero)

    @staticmethod
    def quotient(xp, lhs, rhs, out):
        xp.floor_divide(lhs, rhs, out=out)


class fmod(_Remainder):
    """Remainder of ``lhs / rhs`` with the sign of `lhs`, as C's fmod, with broadcasting; see broadcast_mod.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * trunc(lhs / rhs)``; 0 for whole numbers. As numpy's and ONNX's (Mod with fmod=1).
    """

    aliases = ("broadcast_fmod",)
    function = "fmod"
    rounding = "trunc"

    @staticmethod
    def quotient(xp, lhs, rhs, out):
        xp.divide(lhs, rhs, out=out)
        xp.trunc(out, out=out)


class _mod_scalar(Scalar):
    """Remainder of ``data / scalar`` with the sign of `scalar`, as Python's ``%``; 0 where `scalar` is 0.

    data: (...)  ->  out: (...). Gradient `d_out`; 0 for whole numbers.
    """

    aliases = ("_ModScalar",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        divisor = weak(data, a.scalar)
        if divisor == 0:
            out.fill(0)
        else:
            xp.remainder(data, divisor, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        if _are_whole(d_out):
            d_data.fill(0)
        else:
            copy(xp, d_out, d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": _of_real(w, heads["out"])}


class _rmod_scalar(Scalar):
    """Remainder of ``scalar / data`` with the sign of `data`, as Python's ``%``; 0 where `data` is 0.

    data: (...)  ->  out: (...). Gradient ``-d_out * floor(scalar / data)``; 0 for whole numbers.
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
        if _are_whole(d_out):
            d_data.fill(0)
            return
        for d, x, into in pieces(d_out, data, d_data):
            slope = xp.floor_divide(a.scalar, x)
            xp.negative(slope, out=slope)
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d = _of_real(w, heads["out"])
        count = w.floor(w._rdiv_scalar(ins["data"], scalar=a.scalar))
        return {"data": w.negative(w.elemwise_mul(d, count))}
