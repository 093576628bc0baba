"""Arrays broadcast along axes of length 1, and summed back."""

from __future__ import annotations

from ...core.errors import ShapeError
from ...core.record import record
from ..declared import Declared
from .elementwise import Elementwise


class Stretch(Elementwise):
    """Base: one array stretched along axes of length 1; the gradient sums over them."""

    abstract = True
    inputs = ("data",)
    backward_reads = ("d_out",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def compute(w, a, data):
        return {"out": data}


class broadcast_to(Stretch):
    """`data` stretched to `shape`; 0 in `shape` keeps the axis.

    data: (...) with as many axes as `shape`, each of length 1 or as in `shape`  ->  out: `shape`.
    The gradient sums over the stretched axes.
    """

    @record
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


class broadcast_axis(Stretch):
    """`data` stretched along the axes `axis`, each of length 1, to the lengths `size`.

    data: (...)  ->  out: (...), as many axes. The gradient sums over the stretched axes.
    """

    aliases = ("broadcast_axes",)

    @record
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


class broadcast_like(Elementwise):
    """`lhs` stretched to the shape of `rhs`.

    lhs: (...), axes of length 1 or as in `rhs`, aligned at the last one;  rhs: (...)  ->  out: as `rhs`.
    With `lhs_axes` and `rhs_axes`, only these axes of `lhs`, each of length 1, take the lengths of those of
    `rhs`. Only the shape of `rhs` counts: its numbers are not read and it has no gradient.
    """

    inputs = ("lhs", "rhs")
    shape_only = ("rhs",)
    backward_reads = ("d_out",)
    gradients = ("lhs",)
    backward_in_place = {"d_lhs": "d_out"}
    same_type = ("lhs",)

    @record
    class Attrs:
        lhs_axes: tuple[int, ...] | None = None
        rhs_axes: tuple[int, ...] | None = None

    @staticmethod
    def infer_shape(a, lhs, rhs):
        if (a.lhs_axes is None) != (a.rhs_axes is None) or len(a.lhs_axes or ()) != len(a.rhs_axes or ()):
            raise ShapeError(f"lhs_axes {a.lhs_axes} and rhs_axes {a.rhs_axes} must name equally many axes.")
        if a.lhs_axes == ():
            raise ShapeError(
                "lhs_axes and rhs_axes name no axis: give one of each or more, or neither option."
            )
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

    @staticmethod
    def compute(w, a, lhs, rhs):
        return {"out": lhs}


class _sum_like(Declared):
    """`data` summed over the axes along which `like` would be stretched to its shape.

    data: (...);  like: a shape that stretches to `data`'s  ->  out: `like`'s shape. Only the shape of `like`
    counts: its numbers are not read and it has no gradient. The inverse of broadcasting, in gradients.
    """

    inputs = ("data", "like")
    shape_only = ("like",)
    in_place = {"out": "data"}
    backward_reads = ("d_out",)
    flops_per_input = 1
    same_type = ("data",)

    @staticmethod
    def infer_shape(a, data, like):
        broadcast_like.infer_shape(broadcast_like.Attrs(), like, data)
        return (data, like), (like,)

    @staticmethod
    def compute(t, a, data, like):
        return {"out": t.reduced_to(data, data.shape, like.shape)}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.broadcast_like(heads["out"], ins["data"])}
