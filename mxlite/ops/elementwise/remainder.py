"""Remainders of divisions, with broadcasting."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ..blocks import fold, sum_to
from .broadcast import BroadcastProduct


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

        if d_lhs is not None:
            sum_to(xp, d_out, d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, rhs), d_rhs, work)

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        count = getattr(w, cls.rounding)(w.broadcast_div(lhs, rhs))
        return {"lhs": w._sum_like(d, lhs), "rhs": w.negative(w._sum_like(w.elemwise_mul(d, count), rhs))}


class broadcast_mod(_Remainder):
    """Remainder of ``lhs / rhs`` with the sign of `rhs`, as Python's ``%``; 0 where `rhs` is 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * floor(lhs / rhs)``.
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
    ``-d_out * trunc(lhs / rhs)``. As numpy's and ONNX's (Mod with fmod=1).
    """

    aliases = ("broadcast_fmod",)
    function = "fmod"
    rounding = "trunc"

    @staticmethod
    def quotient(xp, lhs, rhs, out):
        xp.divide(lhs, rhs, out=out, casting="unsafe")
        xp.trunc(out, out=out)
