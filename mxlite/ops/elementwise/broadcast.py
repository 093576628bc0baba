"""Arithmetic with broadcasting: axes of length 1 stretch to the other side's length.

Shapes are aligned at their last axes, as in numpy. The gradient of an input sums over the axes along
which it was stretched.
"""

from __future__ import annotations

from ...core.errors import ShapeError
from .elementwise import Elementwise


class Broadcast(Elementwise):
    """Base: two arrays whose shapes broadcast, of one dtype, to an array of the common shape."""

    abstract = True
    inputs = ("lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}
    accepts = "number"
    gradients = ("lhs", "rhs")

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
    def called(cls, xp, a, lhs, rhs, *, out):
        getattr(xp, cls.function)(lhs, rhs, out=out)


class broadcast_add(Broadcast):
    """Sum with broadcasting, ``out = lhs + rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. A gradient is `d_out`, summed over the
    stretched axes.
    """

    backward_reads = ("d_out",)
    aliases = ("broadcast_plus",)
    backward_in_place = {"d_lhs": "d_out"}
    function = "add"


class broadcast_sub(Broadcast):
    """Difference with broadcasting, ``out = lhs - rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape.
    """

    backward_reads = ("d_out",)
    aliases = ("broadcast_minus",)
    backward_in_place = {"d_lhs": "d_out"}
    function = "subtract"


class broadcast_mul(Broadcast):
    """Product with broadcasting, ``out = lhs * rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape.
    """

    backward_reads = ("d_out", "lhs", "rhs")
    function = "multiply"


class broadcast_div(Broadcast):
    """Quotient with broadcasting, ``out = lhs / rhs``; of whole numbers it is cut towards 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. The gradient reads `lhs` and `rhs`, which
    are never larger than `out`.
    """

    backward_reads = ("d_out", "lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}

    @staticmethod
    def compute(w, a, lhs, rhs):
        return {"out": lhs / rhs}


class broadcast_power(Broadcast):
    """Power with broadcasting, ``out = lhs ** rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. The gradient of `rhs`,
    ``d_out * out * log(lhs)``, is nan for negative `lhs`, and for `lhs` 0.
    """

    backward_reads = ("d_out", "lhs", "rhs", "out")
    aliases = ("_power", "_Power")

    @staticmethod
    def compute(w, a, lhs, rhs):
        return {"out": w("pow", lhs, rhs)}


class broadcast_maximum(Broadcast):
    """The larger of each pair, with broadcasting.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Of equal elements `lhs` gets the gradient,
    and where one is nan. Of 0.0 and -0.0 the result is one or the other.
    """

    backward_reads = ("d_out", "lhs", "rhs")
    aliases = ("_maximum", "_Maximum")
    function = "maximum"


class broadcast_minimum(Broadcast):
    """The smaller of each pair, with broadcasting.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Of equal elements `lhs` gets the gradient,
    and where one is nan. Of 0.0 and -0.0 the result is one or the other.
    """

    backward_reads = ("d_out", "lhs", "rhs")
    aliases = ("_minimum", "_Minimum")
    function = "minimum"


class broadcast_hypot(Broadcast):
    """Hypotenuse with broadcasting, ``out = sqrt(lhs**2 + rhs**2)``, without overflow on the way.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients ``d_out * lhs / out`` and
    ``d_out * rhs / out``: nan where both are 0, as in MXNet.
    """

    backward_reads = ("d_out", "lhs", "rhs", "out")
    aliases = ("_hypot", "_Hypot")
    accepts = "float"
    function = "hypot"


class arctan2(Broadcast):
    """Angle of the point (rhs, lhs) in (-pi, pi], with broadcasting: atan2(lhs, rhs).

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients, with ``s = lhs**2 + rhs**2``:
    ``d_out * rhs / s`` and ``-d_out * lhs / s``.
    """

    backward_reads = ("d_out", "lhs", "rhs")
    aliases = ("broadcast_arctan2", "atan2")
    accepts = "float"
    function = "arctan2"
