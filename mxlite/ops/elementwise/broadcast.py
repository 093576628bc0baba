"""Arithmetic with broadcasting: axes of length 1 stretch to the other side's length.

Shapes are aligned at their last axes, as in numpy. The gradient of an input sums over the axes along
which it was stretched.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.errors import ShapeError
from ...graph.opdef import Op
from ..blocks import fold, fold_bytes, power, sum_to, sum_to_bytes


class Broadcast(Op):
    """Base: two arrays whose shapes broadcast, of one dtype, to an array of the common shape, by numpy's
    `function` unless `forward` says how.
    """

    abstract = True
    inputs = ("lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}
    cheap = True
    accepts = "number"
    function: ClassVar[str]

    @staticmethod
    def infer_shape(a, lhs, rhs):
        rank = max(len(lhs), len(rhs))
        pairs = list(zip((1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs))
        if any(x != y and x != 1 and y != 1 for x, y in pairs):
            raise ShapeError(
                f"lhs {lhs} and rhs {rhs} do not broadcast: aligned at the last axis, "
                f"lengths must be equal or one of them 1."
            )
        return (lhs, rhs), (tuple(y if x == 1 else x for x, y in pairs),)

    @classmethod
    def forward(cls, xp, a, lhs, rhs, *, out):
        getattr(xp, cls.function)(lhs, rhs, out=out)


class _Sum(Broadcast):
    """Base: the gradient is a sum of the head gradient, with no expression to compute."""

    abstract = True

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return max(sum_to_bytes(outputs[0], x, dtype) for x in inputs)


class BroadcastProduct(Broadcast):
    """Base: the gradient computes an expression of the output's shape before it sums."""

    abstract = True

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return fold_bytes(outputs[0], inputs, dtype)


class broadcast_add(_Sum):
    """Sum with broadcasting, ``out = lhs + rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. A gradient is `d_out`, summed over the
    stretched axes.
    """

    aliases = ("broadcast_plus",)
    backward_in_place = {"d_lhs": "d_out"}
    function = "add"

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs, d_rhs, work):
        if d_rhs is not None:
            sum_to(xp, d_out, d_rhs, work)
        if d_lhs is not None:
            sum_to(xp, d_out, d_lhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        return {"lhs": w._sum_like(d, lhs), "rhs": w._sum_like(d, rhs)}


class broadcast_sub(_Sum):
    """Difference with broadcasting, ``out = lhs - rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape.
    """

    aliases = ("broadcast_minus",)
    backward_in_place = {"d_lhs": "d_out"}
    function = "subtract"

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs, d_rhs, work):
        if d_rhs is not None:
            sum_to(xp, d_out, d_rhs, work)
            xp.negative(d_rhs, out=d_rhs)
        if d_lhs is not None:
            sum_to(xp, d_out, d_lhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        return {"lhs": w._sum_like(d, lhs), "rhs": w.negative(w._sum_like(d, rhs))}


class broadcast_mul(BroadcastProduct):
    """Product with broadcasting, ``out = lhs * rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape.
    """

    function = "multiply"

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def product(out, d, other):
            xp.multiply(d, other, out=out)

        if d_lhs is not None:
            fold(xp, product, (d_out, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, product, (d_out, lhs), d_rhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        return {
            "lhs": w._sum_like(w.broadcast_mul(d, rhs), lhs),
            "rhs": w._sum_like(w.broadcast_mul(d, lhs), rhs),
        }


class broadcast_div(BroadcastProduct):
    """Quotient with broadcasting, ``out = lhs / rhs``; of whole numbers it is cut towards 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. The gradient reads `lhs` and `rhs`, which
    are never larger than `out`.
    """

    in_place = {"out": ("lhs", "rhs")}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.divide(lhs, rhs, out=out, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def by_lhs(into, d, y):
            xp.divide(d, y, out=into, casting="unsafe")

        def by_rhs(into, d, x, y):
            xp.divide(x, y, out=into, casting="unsafe")
            xp.divide(into, y, out=into, casting="unsafe")
            xp.multiply(into, d, out=into)
            xp.negative(into, out=into)

        if d_lhs is not None:
            fold(xp, by_lhs, (d_out, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, rhs), d_rhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        by_lhs = w.broadcast_div(d, rhs)
        return {
            "lhs": w._sum_like(by_lhs, lhs),
            "rhs": w.negative(w._sum_like(w.broadcast_mul(by_lhs, w.broadcast_div(lhs, rhs)), rhs)),
        }


class broadcast_power(BroadcastProduct):
    """Power with broadcasting, ``out = lhs ** rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. The gradient of `rhs`,
    ``d_out * out * log(lhs)``, is nan for negative `lhs`, and for `lhs` 0.
    """

    aliases = ("_power", "_Power")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        power(xp, lhs, rhs, out)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, out, *, d_lhs, d_rhs, work):
        # Stretched operands are small in the expression: their functions are computed in pieces by numpy's
        # `out`, never as a whole temporary. lhs**(rhs - 1) is lhs**rhs / lhs only where lhs is not 0, so
        # the power is recomputed.
        def by_lhs(into, d, x, y):
            xp.subtract(y, 1, out=into)
            power(xp, x, into, into)
            xp.multiply(into, y, out=into)
            xp.multiply(into, d, out=into)

        def by_rhs(into, d, x, z):
            xp.copyto(into, x)
            xp.log(into, out=into, casting="unsafe")
            xp.multiply(into, z, out=into)
            xp.multiply(into, d, out=into)

        if d_lhs is not None:
            fold(xp, by_lhs, (d_out, lhs, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, out), d_rhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        slope = w.broadcast_mul(w.broadcast_power(lhs, w._minus_scalar(rhs, scalar=1)), rhs)
        growth = w.broadcast_mul(outs["out"], w.log(lhs))
        return {
            "lhs": w._sum_like(w.elemwise_mul(d, slope), lhs),
            "rhs": w._sum_like(w.elemwise_mul(d, growth), rhs),
        }


def _where_not(xp, compare):
    """For `fold`: the head gradient, but 0 where `compare` holds. It never holds at nan."""

    def fill(into, d, x, y):
        compare(x, y, out=into)
        xp.logical_not(into, out=into)
        xp.multiply(into, d, out=into)

    return fill


def _where(xp, compare):
    """For `fold`: the head gradient where `compare` holds, else 0."""

    def fill(into, d, x, y):
        compare(x, y, out=into)
        xp.multiply(into, d, out=into)

    return fill


class _Either(BroadcastProduct):
    """Base: one of each pair. The gradient goes to `rhs` where numpy's `to_rhs` holds, else to `lhs`."""

    abstract = True
    to_rhs: ClassVar[str]

    @classmethod
    def backward(cls, xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        compare = getattr(xp, cls.to_rhs)
        if d_lhs is not None:
            fold(xp, _where_not(xp, compare), (d_out, lhs, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, _where(xp, compare), (d_out, lhs, rhs), d_rhs, work)

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        to_rhs = (w.broadcast_lesser if cls.to_rhs == "less" else w.broadcast_greater)(lhs, rhs)
        return {
            "lhs": w._sum_like(w.elemwise_mul(d, w._rminus_scalar(to_rhs, scalar=1.0)), lhs),
            "rhs": w._sum_like(w.elemwise_mul(d, to_rhs), rhs),
        }


class broadcast_maximum(_Either):
    """The larger of each pair, with broadcasting.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Of equal elements `lhs` gets the gradient,
    and where one is nan. Of 0.0 and -0.0 the result is one or the other.
    """

    aliases = ("_maximum", "_Maximum")
    function = "maximum"
    to_rhs = "less"


class broadcast_minimum(_Either):
    """The smaller of each pair, with broadcasting.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Of equal elements `lhs` gets the gradient,
    and where one is nan. Of 0.0 and -0.0 the result is one or the other.
    """

    aliases = ("_minimum", "_Minimum")
    function = "minimum"
    to_rhs = "greater"


class broadcast_hypot(BroadcastProduct):
    """Hypotenuse with broadcasting, ``out = sqrt(lhs**2 + rhs**2)``, without overflow on the way.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients ``d_out * lhs / out`` and
    ``d_out * rhs / out``: nan where both are 0, as in MXNet.
    """

    aliases = ("_hypot", "_Hypot")
    accepts = "float"
    function = "hypot"

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, out, *, d_lhs, d_rhs, work):
        def slope(into, d, x, y):
            xp.divide(x, y, out=into)
            xp.multiply(into, d, out=into)

        if d_lhs is not None:
            fold(xp, slope, (d_out, lhs, out), d_lhs, work)
        if d_rhs is not None:
            fold(xp, slope, (d_out, rhs, out), d_rhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        part = w.elemwise_div(d, outs["out"])
        return {
            "lhs": w._sum_like(w.broadcast_mul(part, lhs), lhs),
            "rhs": w._sum_like(w.broadcast_mul(part, rhs), rhs),
        }


class arctan2(BroadcastProduct):
    """Angle of the point (rhs, lhs) in (-pi, pi], with broadcasting: atan2(lhs, rhs).

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients, with ``s = lhs**2 + rhs**2``:
    ``d_out * rhs / s`` and ``-d_out * lhs / s``.
    """

    aliases = ("broadcast_arctan2", "atan2")
    accepts = "float"
    function = "arctan2"

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def slope(into, d, x, y):
            xp.hypot(x, y, out=into)
            xp.multiply(into, into, out=into)
            xp.divide(x, into, out=into)
            xp.multiply(into, d, out=into)

        if d_lhs is not None:
            fold(xp, slope, (d_out, rhs, lhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, slope, (d_out, lhs, rhs), d_rhs, work)
            xp.negative(d_rhs, out=d_rhs)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        part = w.elemwise_div(d, w.broadcast_add(w.square(lhs), w.square(rhs)))
        return {
            "lhs": w._sum_like(w.broadcast_mul(part, rhs), lhs),
            "rhs": w.negative(w._sum_like(w.broadcast_mul(part, lhs), rhs)),
        }
