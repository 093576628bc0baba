"""Sums, means, maxima over axes.

`axis` is an axis, a tuple of them, or None for all; `exclude` reduces over all *other* axes; `keepdims`
leaves axes of length 1. A reduction over all axes has the shape (1,), not (), as in MXNet.
"""

from __future__ import annotations

from math import prod as product
from typing import Any, ClassVar

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ..declared import Declared


@record
class ReduceAttrs:
    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False


def reduced_axes(a: Any, rank: int) -> tuple[int, ...]:
    """The axes that `a` reduces in an array of `rank` axes, in order. Raises ShapeError for a wrong one."""
    axes = (a.axis,) if isinstance(a.axis, int) else a.axis or range(rank)
    for i in axes:
        if not -rank <= i < rank:
            raise ShapeError(f"axis {i} is not one of an array of {rank} axes.")
    chosen = {i % rank for i in axes}
    if len(chosen) != len(axes):
        raise ShapeError(f"axis {a.axis} names an axis twice.")
    if a.axis and getattr(a, "exclude", False):
        chosen = set(range(rank)) - chosen
    return tuple(sorted(chosen))


def kept_shape(a: Any, shape: Shape) -> Shape:
    """The output's shape with every reduced axis kept at length 1."""
    axes = reduced_axes(a, len(shape))
    return tuple(1 if i in axes else d for i, d in enumerate(shape))


class Reduce(Declared):
    """One array to its reduction over axes."""

    inputs = ("data",)
    accepts = "number"
    Attrs: ClassVar[type] = ReduceAttrs

    @staticmethod
    def infer_shape(a, data):
        axes = reduced_axes(a, len(data))
        if a.keepdims:
            return (data,), (kept_shape(a, data),)
        return (data,), (tuple(d for i, d in enumerate(data) if i not in axes) or (1,),)

    @staticmethod
    def flops(a, inputs, outputs):
        return product(inputs[0])


class NonEmpty(Reduce):
    """A reduction that needs at least one element, such as the largest or smallest."""

    @classmethod
    def infer_shape(cls, a, data):
        result = super().infer_shape(a, data)
        axes = reduced_axes(a, len(data))
        if (empty := [i for i in axes if not data[i]]) and product(result[1][0]):
            raise ShapeError(
                f"data {data} has no element along axis {empty[0]} to take the {cls.op_name} of."
            )
        return result


class sum(Reduce):
    """Sum over axes.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient spreads `d_out` over the summed axes and reads no input.
    """

    aliases = ("sum_axis",)
    backward_reads = ("d_out",)

    @staticmethod
    def compute(t, a, data):
        return {"out": t.sum(data, reduced_axes(a, len(data.shape)))}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": spread(w, a, heads["out"], ins["data"])}


class mean(Reduce):
    """Mean over axes; for whole numbers it is cut towards 0, for no element it is nan.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient spreads `d_out / count` over the axes and reads no input.
    """

    backward_reads = ("d_out",)

    @staticmethod
    def compute(t, a, data):
        return {"out": t.mean(data, reduced_axes(a, len(data.shape)))}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": spread(w, a, heads["out"], ins["data"], mean=True)}


class prod(Reduce):
    """Product over axes.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient is ``d_out * out / data``: nan where an element is 0, as in MXNet.
    """

    backward_reads = ("d_out", "data", "out")

    @staticmethod
    def compute(t, a, data):
        return {"out": t.prod(data, reduced_axes(a, len(data.shape)))}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        total = spread(w, a, w.elemwise_mul(heads["out"], outs["out"]), ins["data"])
        return {"data": w.elemwise_div(total, ins["data"])}


class nansum(Reduce):
    """Sum over axes of the elements that are not nan.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient of an element is `d_out`, and 0 where it is nan.
    """

    accepts = "float"
    backward_reads = ("d_out", "data")

    @staticmethod
    def compute(t, a, data):
        return {"out": t.sum(t.where("eq", data, data, data, 0.0), reduced_axes(a, len(data.shape)))}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        known = w.broadcast_equal(ins["data"], ins["data"])
        return {"data": w.elemwise_mul(spread(w, a, heads["out"], ins["data"]), known)}


class nanprod(Reduce):
    """Product over axes of the elements that are not nan.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient of an element is ``d_out * out / data``, and 0 where it is nan.
    """

    accepts = "float"
    backward_reads = ("d_out", "data", "out")

    @staticmethod
    def compute(t, a, data):
        return {"out": t.prod(t.where("eq", data, data, data, 1.0), reduced_axes(a, len(data.shape)))}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x = ins["data"]
        total = spread(w, a, w.elemwise_mul(heads["out"], outs["out"]), x)
        known = w.broadcast_equal(x, x)
        return {"data": w.elemwise_mul(w.elemwise_div(total, w.where(known, x, w.ones_like(x))), known)}


class any(Reduce):
    """1 where an element over axes is not 0, else 0, in the dtype of `data`; 0 for no element.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left. No gradient.
    """

    accepts = "any"

    @staticmethod
    def compute(t, a, data):
        most = t.max(t.one_where("ne", data, 0.0), reduced_axes(a, len(data.shape)))
        return {"out": t("max", most, 0.0)}


class all(Reduce):
    """1 where no element over axes is 0, else 0, in the dtype of `data`; 1 for no element.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left. No gradient.
    """

    accepts = "any"

    @staticmethod
    def compute(t, a, data):
        least = t.min(t.one_where("ne", data, 0.0), reduced_axes(a, len(data.shape)))
        return {"out": t("min", least, 1.0)}


class SpreadLike(Declared):
    """The broadcast that undoes a reduction: `data` repeated along the axes reduced in `like`.

    data: `like`'s shape without the axes `axis`;  like: (...)  ->  out: `like`'s shape. With `mean` divided
    by the count of elements reduced to one. Only the shape of `like` counts: its numbers are not
    read and it has no gradient.
    """

    op_name = "_spread_like"
    inputs = ("data", "like")
    shape_only = ("like",)
    same_type = ("data",)
    backward_reads = ("d_out",)

    @record
    class Attrs:
        axis: tuple[int, ...] | None = None
        keepdims: bool = False
        exclude: bool = False
        mean: bool = False

    @staticmethod
    def infer_shape(a, data, like):
        _, (wanted,) = Reduce.infer_shape(a, like)
        if data != wanted:
            raise ShapeError(
                f"data must be {wanted}, as like {like} is after the reduction, but it is {data}."
            )
        return (data, like), (like,)

    @staticmethod
    def compute(t, a, data, like):
        kept = kept_shape(a, like.shape)
        each = t.view(data, kept)
        if a.mean:
            each = each / t.constant(product(like.shape) / product(kept))
        return {"out": t.broadcast(each, like.shape)}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        reduce = w.mean if a.mean else w.sum
        return {"data": reduce(heads["out"], axis=a.axis, keepdims=a.keepdims, exclude=a.exclude)}


def spread(w, a, data, like, mean=False):
    return w._spread_like(
        data, like, axis=a.axis, keepdims=a.keepdims, exclude=getattr(a, "exclude", False), mean=mean
    )
