"""Arithmetic with broadcasting: axes of length 1 stretch to the other side's length.

Shapes are aligned at their last axes, as in numpy. The gradient of an input sums over the axes along
which it was stretched.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..core.errors import ShapeError
from ..graph.opdef import Op
from .blocks import fold, fold_bytes, power, sum_to, sum_to_bytes


class _Broadcast(Op):
    """Two arrays whose shapes broadcast, of one dtype, to an array of the common shape."""

    inputs = ("lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}
    cheap = True
    accepts = "number"

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


class _Sum(_Broadcast):
    """One whose gradient is a sum of the head gradient, with no expression to form."""

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return max(sum_to_bytes(outputs[0], x, dtype) for x in inputs)


class _Product(_Broadcast):
    """One whose gradient forms an expression of the output's shape before it sums."""

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

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.add(lhs, rhs, out=out)

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

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.subtract(lhs, rhs, out=out)

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

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        return {
            "lhs": w._sum_like(w.broadcast_mul(d, rhs), lhs),
            "rhs": w._sum_like(w.broadcast_mul(d, lhs), rhs),
        }


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

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        by_lhs = w.broadcast_div(d, rhs)
        return {
            "lhs": w._sum_like(by_lhs, lhs),
            "rhs": w.negative(w._sum_like(w.elemwise_mul(by_lhs, outs["out"]), rhs)),
        }


class broadcast_power(_Product):
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

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        slope = w.broadcast_mul(w.broadcast_power(lhs, w._minus_scalar(rhs, scalar=1)), rhs)
        growth = w.broadcast_mul(outs["out"], w.log(lhs))
        return {
            "lhs": w._sum_like(w.elemwise_mul(d, slope), lhs),
            "rhs": w._sum_like(w.elemwise_mul(d, growth), rhs),
        }


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

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        return {
            "lhs": w._sum_like(w.elemwise_mul(d, w.broadcast_greater_equal(lhs, rhs)), lhs),
            "rhs": w._sum_like(w.elemwise_mul(d, w.broadcast_lesser(lhs, rhs)), rhs),
        }


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

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs = heads["out"], ins["lhs"], ins["rhs"]
        return {
            "lhs": w._sum_like(w.elemwise_mul(d, w.broadcast_lesser_equal(lhs, rhs)), lhs),
            "rhs": w._sum_like(w.elemwise_mul(d, w.broadcast_greater(lhs, rhs)), rhs),
        }


class broadcast_hypot(_Product):
    """Hypotenuse with broadcasting, ``out = sqrt(lhs**2 + rhs**2)``, without overflow on the way.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients ``d_out * lhs / out`` and
    ``d_out * rhs / out``: nan where both are 0, as in MXNet.
    """

    aliases = ("_hypot", "_Hypot", "hypot")
    accepts = "float"

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.hypot(lhs, rhs, out=out)

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


class arctan2(_Product):
    """Angle of the point (rhs, lhs) in (-pi, pi], with broadcasting: atan2(lhs, rhs).

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients, with ``s = lhs**2 + rhs**2``:
    ``d_out * rhs / s`` and ``-d_out * lhs / s``.
    """

    aliases = ("broadcast_arctan2", "atan2")
    accepts = "float"

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.arctan2(lhs, rhs, out=out)

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
    def backward(xp, a, d_out, *, d_data, work):
        sum_to(xp, d_out, d_data, work)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return sum_to_bytes(outputs[0], inputs[0], dtype)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._sum_like(heads["out"], ins["data"])}


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
    def backward(xp, a, d_out, *, d_data, work):
        sum_to(xp, d_out, d_data, work)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return sum_to_bytes(outputs[0], inputs[0], dtype)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._sum_like(heads["out"], ins["data"])}


class broadcast_like(Op):
    """`lhs` stretched to the shape of `rhs`.

    lhs: (...), axes of length 1 or as in `rhs`, aligned at the last one;  rhs: (...)  ->  out: as `rhs`.
    With `lhs_axes` and `rhs_axes`, only these axes of `lhs`, each of length 1, take the lengths of those of
    `rhs`. `rhs` is there for its shape: its numbers are not read and it has no gradient.
    """

    inputs = ("lhs", "rhs")
    cheap = True
    backward_in_place = {"d_lhs": "d_out"}

    @dataclass(frozen=True)
    class Attrs:
        lhs_axes: tuple[int, ...] | None = None
        rhs_axes: tuple[int, ...] | None = None

    @staticmethod
    def infer_shape(a, lhs, rhs):
        if (a.lhs_axes is None) != (a.rhs_axes is None) or len(a.lhs_axes or ()) != len(a.rhs_axes or ()):
            raise ShapeError(f"lhs_axes {a.lhs_axes} and rhs_axes {a.rhs_axes} must name equally many axes.")
        if a.lhs_axes is None:
            aligned = (1,) * (len(rhs) - len(lhs)) + lhs
            if len(lhs) > len(rhs) or any(d not in (1, s) for d, s in zip(aligned, rhs)):
                raise ShapeError(f"lhs {lhs} does not stretch to rhs {rhs}: only axes of length 1 do.")
            return (lhs, rhs), (rhs,)
        out = list(lhs)
        for i, j in zip(a.lhs_axes, a.rhs_axes):
            if not (-len(lhs) <= i < len(lhs) and -len(rhs) <= j < len(rhs)):
                raise ShapeError(f"lhs_axes {i} or rhs_axes {j} is not an axis of lhs {lhs} or rhs {rhs}.")
            if lhs[i] not in (1, rhs[j]):
                raise ShapeError(f"axis {i} of lhs {lhs} must have length 1 to stretch to {rhs[j]}.")
            out[i] = rhs[j]
        return (lhs, rhs), (tuple(out),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, dtypes[:1]

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.copyto(out, lhs)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return sum_to_bytes(outputs[0], inputs[0], dtype)

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs, work):
        sum_to(xp, d_out, d_lhs, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"lhs": w._sum_like(heads["out"], ins["lhs"])}


class _sum_like(Op):
    """`data` summed over the axes along which `like` would be stretched to its shape.

    data: (...);  like: a shape that stretches to `data`'s  ->  out: `like`'s shape. `like` is there for its
    shape: its numbers are not read and it has no gradient. The inverse of broadcasting, in gradients.
    """

    inputs = ("data", "like")
    in_place = {"out": "data"}

    @staticmethod
    def infer_shape(a, data, like):
        broadcast_like.infer_shape(broadcast_like.Attrs(), like, data)
        return (data, like), (like,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, dtypes[:1]

    @staticmethod
    def flops(a, inputs, outputs):
        return prod(inputs[0])

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return sum_to_bytes(inputs[0], outputs[0], dtype)

    @staticmethod
    def forward(xp, a, data, like, *, out, work):
        sum_to(xp, data, out, work)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.broadcast_like(heads["out"], ins["data"])}
