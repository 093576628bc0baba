"""Sums, means, maxima over axes.

`axis` is an axis, a tuple of them, or None for all; `exclude` reduces over all *other* axes; `keepdims`
leaves axes of length 1. A reduction over all axes has the shape (1,), not (), as in MXNet.
"""

from __future__ import annotations

from math import prod as product
from typing import Any, ClassVar

from ...core.dtype import is_floating
from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Op
from ..blocks import accumulate, accumulate_bytes, fold, fold_bytes, pieces
from ..scratch import accumulator


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


class Reduce(Op):
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


class _Accumulated(Reduce):
    """A reduction whose 16-bit floats are summed or multiplied in float32."""

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return accumulate_bytes(outputs[0], dtype)


class _Known(Reduce):
    """A reduction of the elements that are not nan."""

    accepts = "float"

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return fold_bytes(inputs[0], (kept_shape(a, inputs[0]),), dtype)


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


class sum(_Accumulated):
    """Sum over axes.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient spreads `d_out` over the summed axes and reads no input.
    """

    aliases = ("sum_axis",)

    @staticmethod
    def compute(t, a, data):
        return {"out": t.sum(data, reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        axes = reduced_axes(a, data.ndim)
        accumulate(xp, xp.add, data, axes, out.reshape(kept_shape(a, data.shape)), work)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out.reshape(kept_shape(a, d_data.shape)))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": spread(w, a, heads["out"], ins["data"])}


class mean(_Accumulated):
    """Mean over axes; for whole numbers it is cut towards 0, for no element it is nan.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient spreads `d_out / count` over the axes and reads no input.
    """

    @staticmethod
    def compute(t, a, data):
        return {"out": t.mean(data, reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        count = data.size // out.size if out.size else 1

        def divide(total):
            if count or total.dtype.kind not in "iu":
                xp.divide(total, count, out=total, casting="unsafe")

        axes = reduced_axes(a, data.ndim)
        accumulate(xp, xp.add, data, axes, out.reshape(kept_shape(a, data.shape)), work, divide)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        if d_data.size:
            kept = d_out.reshape(kept_shape(a, d_data.shape))
            xp.divide(kept, wide_count(d_data, d_out), out=d_data, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": spread(w, a, heads["out"], ins["data"], mean=True)}


class prod(_Accumulated):
    """Product over axes.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient is ``d_out * out / data``: nan where an element is 0, as in MXNet.
    """

    @staticmethod
    def compute(t, a, data):
        return {"out": t.prod(data, reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        axes = reduced_axes(a, data.ndim)
        accumulate(xp, xp.multiply, data, axes, out.reshape(kept_shape(a, data.shape)), work)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = kept_shape(a, data.shape)
        xp.divide(out.reshape(kept), data, out=d_data, casting="unsafe")
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        total = spread(w, a, w.elemwise_mul(heads["out"], outs["out"]), ins["data"])
        return {"data": w.elemwise_div(total, ins["data"])}


class nansum(_Known):
    """Sum over axes of the elements that are not nan.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient of an element is `d_out`, and 0 where it is nan.
    """

    @staticmethod
    def compute(t, a, data):
        return {"out": t.sum(t.where("eq", data, data, data, 0.0), reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        def known(into, x):
            for part, to in pieces(x, into):
                xp.copyto(to, part)
                xp.copyto(to, 0, where=xp.isnan(part))

        fold(xp, known, (data,), out.reshape(kept_shape(a, data.shape)), work)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        xp.equal(data, data, out=d_data)
        xp.multiply(d_data, d_out.reshape(kept_shape(a, data.shape)), out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        known = w.broadcast_equal(ins["data"], ins["data"])
        return {"data": w.elemwise_mul(spread(w, a, heads["out"], ins["data"]), known)}


class nanprod(_Known):
    """Product over axes of the elements that are not nan.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient of an element is ``d_out * out / data``, and 0 where it is nan.
    """

    @staticmethod
    def compute(t, a, data):
        return {"out": t.prod(t.where("eq", data, data, data, 1.0), reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        def known(into, x):
            for part, to in pieces(x, into):
                xp.copyto(to, part)
                xp.copyto(to, 1, where=xp.isnan(part))

        fold(xp, known, (data,), out.reshape(kept_shape(a, data.shape)), work, xp.multiply)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = kept_shape(a, data.shape)
        xp.divide(out.reshape(kept), data, out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)
        for x, into in pieces(data, d_data):
            xp.copyto(into, 0, where=xp.isnan(x))

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
        return {"out": t.max(t.one_where("ne", data, 0.0), reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out):
        _truth(xp, xp.logical_or, a, data, out)


class all(Reduce):
    """1 where no element over axes is 0, else 0, in the dtype of `data`; 1 for no element.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left. No gradient.
    """

    accepts = "any"

    @staticmethod
    def compute(t, a, data):
        return {"out": t.min(t.one_where("ne", data, 0.0), reduced_axes(a, len(data.shape)))}

    @staticmethod
    def forward(xp, a, data, *, out):
        _truth(xp, xp.logical_and, a, data, out)


class SpreadLike(Op):
    """The broadcast that undoes a reduction: `data` repeated along the axes reduced in `like`.

    data: `like`'s shape without the axes `axis`;  like: (...)  ->  out: `like`'s shape. With `mean` divided
    by the count of elements reduced to one. Only the shape of `like` counts: its numbers are not
    read and it has no gradient.
    """

    op_name = "_spread_like"
    inputs = ("data", "like")
    shape_only = ("like",)
    same_type = ("data",)

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
    def backward_workspace(a, inputs, outputs, dtype):
        return accumulate_bytes(inputs[0], dtype)

    @staticmethod
    def compute(t, a, data, like):
        kept = kept_shape(a, like.shape)
        each = t.view(data, kept)
        if a.mean:
            each = each / t.constant(product(like.shape) / product(kept))
        return {"out": t.broadcast(each, like.shape)}

    @staticmethod
    def forward(xp, a, data, like, *, out):
        kept = data.reshape(kept_shape(a, like.shape))
        if a.mean and out.size:
            xp.divide(kept, wide_count(out, kept), out=out, casting="unsafe")
        else:
            xp.copyto(out, kept)

    @staticmethod
    def backward(xp, a, d_out, *, d_data, work):
        (mean if a.mean else sum).forward(xp, a, d_out, out=d_data, work=work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        reduce = w.mean if a.mean else w.sum
        return {"data": reduce(heads["out"], axis=a.axis, keepdims=a.keepdims, exclude=a.exclude)}


def wide_count(whole, kept):
    """How many elements of `whole` each of `kept` stands for, in the type of sums: in float16 a large number
    would be infinite.
    """
    count = whole.size // kept.size
    return accumulator(whole.dtype).type(count) if is_floating(whole.dtype) else count


def spread(w, a, data, like, mean=False):
    return w._spread_like(
        data, like, axis=a.axis, keepdims=a.keepdims, exclude=getattr(a, "exclude", False), mean=mean
    )


def _truth(xp, ufunc, a, data, out):
    """Reduce truth values, without a temporary of bools for all of a long axis 0."""
    kept = out.reshape(kept_shape(a, data.shape))
    ufunc.reduce(data, axis=reduced_axes(a, data.ndim), keepdims=True, out=kept, dtype=bool)
