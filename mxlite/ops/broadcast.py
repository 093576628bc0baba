"""Arithmetic with broadcasting: axes of length 1 stretch to the other side's length.

Shapes are aligned at their last axes, as in numpy. The gradient of an input sums over the axes along
which it was stretched.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..core.errors import ShapeError
from ..graph.opdef import Op
from .blocks import fold, fold_bytes


class _Broadcast(Op):
    """Two arrays whose shapes broadcast, of one dtype, to an array of the common shape."""

    inputs = ("lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}
    cheap = True

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


class _Product(_Broadcast):
    """One whose gradient forms an expression of the output's shape before it sums."""

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return fold_bytes(outputs[0], inputs, dtype)


def _sum_to(xp, source, target):
    """`source` summed over the axes along which `target` was stretched."""
    view = target.reshape((1,) * (source.ndim - target.ndim) + target.shape)
    axes = tuple(i for i in range(source.ndim) if view.shape[i] != source.shape[i])
    if axes:
        xp.add.reduce(source, axis=axes, keepdims=True, out=view)
    elif not xp.may_share_memory(source, view):
        xp.copyto(view, source)


class broadcast_add(_Broadcast):
    """Sum with broadcasting, ``out = lhs + rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. A gradient is `d_out`, summed over the
    stretched axes.
    """

    aliases = ("broadcast_plus",)
    backward_in_place = {"d_lhs": "d_out"}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.add(lhs, rhs, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs, d_rhs):
        if d_rhs is not None:
            _sum_to(xp, d_out, d_rhs)
        if d_lhs is not None:
            _sum_to(xp, d_out, d_lhs)


class broadcast_sub(_Broadcast):
    """Difference with broadcasting, ``out = lhs - rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape.
    """

    aliases = ("broadcast_minus",)
    backward_in_place = {"d_lhs": "d_out"}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.subtract(lhs, rhs, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs, d_rhs):
        if d_rhs is not None:
            _sum_to(xp, d_out, d_rhs)
            xp.negative(d_rhs, out=d_rhs)
        if d_lhs is not None:
            _sum_to(xp, d_out, d_lhs)


class broadcast_mul(_Product):
    """Product with broadcasting, ``out = lhs * rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape.
    """

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.multiply(lhs, rhs, out=out)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def product(out, d, other):
            xp.multiply(d, other, out=out)

        if d_lhs is not None:
            fold(xp, product, (d_out, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, product, (d_out, lhs), d_rhs, work)


class broadcast_div(_Product):
    """Quotient with broadcasting, ``out = lhs / rhs``; of whole numbers it is cut towards 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. The gradient reads `rhs` and `out`.
    """

    in_place = {"out": "lhs"}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.divide(lhs, rhs, out=out, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, rhs, out, *, d_lhs, d_rhs, work):
        def by_lhs(into, d, y):
            xp.divide(d, y, out=into)

        def by_rhs(into, d, quotient, y):
            xp.multiply(d, quotient, out=into)
            xp.divide(into, y, out=into)
            xp.negative(into, out=into)

        if d_lhs is not None:
            fold(xp, by_lhs, (d_out, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, out, rhs), d_rhs, work)


class broadcast_power(_Product):
    """Power with broadcasting, ``out = lhs ** rhs``.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. The gradient of `rhs`,
    ``d_out * out * log(lhs)``, is nan for negative `lhs`, and for `lhs` 0.
    """

    aliases = ("_power", "_Power")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.power(lhs, rhs, out=out)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, out, *, d_lhs, d_rhs, work):
        # Stretched operands come small into the expression: their functions are formed in pieces by numpy's
        # `out`, never as a whole temporary. lhs**(rhs - 1) is lhs**rhs / lhs only where lhs is not 0, so
        # the power is taken again.
        def by_lhs(into, d, x, y):
            xp.subtract(y, 1, out=into)
            xp.power(x, into, out=into)
            xp.multiply(into, y, out=into)
            xp.multiply(into, d, out=into)

        def by_rhs(into, d, x, power):
            xp.copyto(into, x)
            xp.log(into, out=into)
            xp.multiply(into, power, out=into)
            xp.multiply(into, d, out=into)

        if d_lhs is not None:
            fold(xp, by_lhs, (d_out, lhs, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, out), d_rhs, work)


class broadcast_maximum(_Product):
    """The larger of each pair, with broadcasting.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Of equal elements `lhs` gets the gradient.
    """

    aliases = ("_maximum", "_Maximum")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.maximum(lhs, rhs, out=out)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def where(compare):
            def fill(into, d, x, y):
                compare(x, y, out=into)
                xp.multiply(into, d, out=into)

            return fill

        if d_lhs is not None:
            fold(xp, where(xp.greater_equal), (d_out, lhs, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, where(xp.less), (d_out, lhs, rhs), d_rhs, work)


class broadcast_minimum(_Product):
    """The smaller of each pair, with broadcasting.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Of equal elements `lhs` gets the gradient.
    """

    aliases = ("_minimum", "_Minimum")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.minimum(lhs, rhs, out=out)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs, work):
        def where(compare):
            def fill(into, d, x, y):
                compare(x, y, out=into)
                xp.multiply(into, d, out=into)

            return fill

        if d_lhs is not None:
            fold(xp, where(xp.less_equal), (d_out, lhs, rhs), d_lhs, work)
        if d_rhs is not None:
            fold(xp, where(xp.greater), (d_out, lhs, rhs), d_rhs, work)


class broadcast_mod(_Product):
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
            _sum_to(xp, d_out, d_lhs)
        if d_rhs is not None:
            fold(xp, by_rhs, (d_out, lhs, rhs), d_rhs, work)


class broadcast_equal(_Broadcast):
    """1 where ``lhs == rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_equal", "_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.equal(lhs, rhs, out=out)


class broadcast_not_equal(_Broadcast):
    """1 where ``lhs != rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_not_equal", "_Not_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.not_equal(lhs, rhs, out=out)


class broadcast_greater(_Broadcast):
    """1 where ``lhs > rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_greater", "_Greater")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.greater(lhs, rhs, out=out)


class broadcast_greater_equal(_Broadcast):
    """1 where ``lhs >= rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_greater_equal", "_Greater_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.greater_equal(lhs, rhs, out=out)


class broadcast_lesser(_Broadcast):
    """1 where ``lhs < rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_lesser", "_Lesser")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.less(lhs, rhs, out=out)


class broadcast_lesser_equal(_Broadcast):
    """1 where ``lhs <= rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_lesser_equal", "_Lesser_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.less_equal(lhs, rhs, out=out)


class broadcast_to(Op):
    """`data` stretched to `shape`; 0 in `shape` keeps the axis.

    data: (...) with as many axes as `shape`, each of length 1 or as in `shape`  ->  out: `shape`.
    The gradient sums over the stretched axes.
    """

    inputs = ("data",)
    cheap = True
    backward_in_place = {"d_data": "d_out"}

    @dataclass(frozen=True)
    class Attrs:
        shape: tuple[int, ...] = ()

    @staticmethod
    def infer_shape(a, data):
        if len(a.shape) != len(data):
            raise ShapeError(f"shape {a.shape} must have as many axes as data {data}.")
        out = tuple(s or d for s, d in zip(a.shape, data))
        if any(d not in (1, s) for s, d in zip(out, data)):
            raise ShapeError(f"data {data} does not stretch to {out}: only axes of length 1 do.")
        return (data,), (out,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        _sum_to(xp, d_out, d_data)


class broadcast_axis(Op):
    """`data` stretched along the axes `axis`, each of length 1, to the lengths `size`.

    data: (...)  ->  out: (...), as many axes. The gradient sums over the stretched axes.
    """

    aliases = ("broadcast_axes",)
    inputs = ("data",)
    cheap = True
    backward_in_place = {"d_data": "d_out"}

    @dataclass(frozen=True)
    class Attrs:
        axis: tuple[int, ...] = ()
        size: tuple[int, ...] = ()

    @staticmethod
    def infer_shape(a, data):
        if len(a.axis) != len(a.size):
            raise ShapeError(f"axis {a.axis} and size {a.size} must be equally long.")
        out = list(data)
        for axis, size in zip(a.axis, a.size):
            if not -len(data) <= axis < len(data):
                raise ShapeError(f"axis {axis} is not an axis of data {data}.")
            if data[axis] != 1:
                raise ShapeError(f"axis {axis} of data {data} must have length 1 to stretch to {size}.")
            out[axis] = size
        return (data,), (tuple(out),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        _sum_to(xp, d_out, d_data)
