"""Remainders of divisions, with broadcasting."""

from __future__ import annotations

from math import prod

from ..blocks import fold, sum_to
from .broadcast import BroadcastProduct


class broadcast_mod(BroadcastProduct):
    """Remainder of ``lhs / rhs`` with the sign of `rhs`, as Python's ``%``; 0 where `rhs` is 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * floor(lhs / rhs)``.
    """

    aliases = ("_mod", "_Mod")
    in_place = {"out": "lhs"}

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return prod(inputs[1])

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out, work):
        zero = work[: rhs.size].view("bool").reshape(rhs.shape)
        xp.equal(rhs, 0, out=zero)
        xp.remainder(lhs, rhs, out=out)
        xp.copyto(out, 0, where=zero)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def by_rhs(into, d, x, y):
            xp.floor_divide(x, y, out=into)
            xp.multiply(into, d, out=into)
            xp.negative(into, out=into)

        if d_lhs is not None:
            sum_to(xp, d_out, d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, rhs), d_rhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        count = w.floor(w.broadcast_div(lhs, rhs))
        return {
            "lhs": w._sum_like(d, lhs),
            "rhs": w.negative(w._sum_like(w.elemwise_mul(d, count), rhs)),
        }


class fmod(BroadcastProduct):
    """Remainder of ``lhs / rhs`` with the sign of `lhs`, as C's fmod, with broadcasting; see broadcast_mod.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * trunc(lhs / rhs)``. As numpy's and ONNX's (Mod with fmod=1).
    """

    aliases = ("broadcast_fmod",)
    in_place = {"out": "lhs"}
    function = "fmod"

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def by_rhs(into, d, x, y):
            xp.divide(x, y, out=into, casting="unsafe")
            xp.trunc(into, out=into)
            xp.multiply(into, d, out=into)
            xp.negative(into, out=into)

        if d_lhs is not None:
            sum_to(xp, d_out, d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, rhs), d_rhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        count = w.trunc(w.broadcast_div(lhs, rhs))
        return {"lhs": w._sum_like(d, lhs), "rhs": w.negative(w._sum_like(w.elemwise_mul(d, count), rhs))}
