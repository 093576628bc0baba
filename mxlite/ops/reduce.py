"""Sums, means, maxima over axes.

`axis` is an axis, a tuple of them, or None for all; `exclude` reduces over all *other* axes; `keepdims`
leaves axes of length 1. A reduction over all axes has the shape (1,), not (), as in MXNet.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod as product
from typing import Any, ClassVar

from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import Op
from .blocks import fold, fold_bytes, PIECE


@dataclass(frozen=True)
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


def _kept(a: Any, shape: Shape) -> Shape:
    """The output's shape with every reduced axis left in at length 1."""
    axes = reduced_axes(a, len(shape))
    return tuple(1 if i in axes else d for i, d in enumerate(shape))


class _Reduce(Op):
    """One array to its reduction over axes."""

    inputs = ("data",)
    Attrs: ClassVar[type] = ReduceAttrs

    @staticmethod
    def infer_shape(a, data):
        axes = reduced_axes(a, len(data))
        if a.keepdims:
            return (data,), (_kept(a, data),)
        return (data,), (tuple(d for i, d in enumerate(data) if i not in axes) or (1,),)

    @staticmethod
    def flops(a, inputs, outputs):
        return product(inputs[0])


class sum(_Reduce):
    """Sum over axes.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient spreads `d_out` over the summed axes and reads no input.
    """

    aliases = ("sum_axis",)

    @staticmethod
    def forward(xp, a, data, *, out):
        axes = reduced_axes(a, data.ndim)
        xp.add.reduce(data, axis=axes, dtype=data.dtype, keepdims=True, out=out.reshape(_kept(a, data.shape)))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out.reshape(_kept(a, d_data.shape)))


class mean(_Reduce):
    """Mean over axes; of whole numbers it is cut towards 0.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient spreads `d_out / count` over the axes and reads no input.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        axes = reduced_axes(a, data.ndim)
        xp.add.reduce(data, axis=axes, dtype=data.dtype, keepdims=True, out=out.reshape(_kept(a, data.shape)))
        xp.divide(out, data.size // out.size, out=out, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.divide(d_out.reshape(_kept(a, d_data.shape)), d_data.size // d_out.size, out=d_data)


class prod(_Reduce):
    """Product over axes.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient is ``d_out * out / data``: nan where an element is 0, as in MXNet.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        axes = reduced_axes(a, data.ndim)
        kept = out.reshape(_kept(a, data.shape))
        xp.multiply.reduce(data, axis=axes, dtype=data.dtype, keepdims=True, out=kept)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = _kept(a, data.shape)
        xp.divide(out.reshape(kept), data, out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)


class max(_Reduce):
    """Largest element over axes; nan if there is one.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Every element equal to the maximum gets the whole gradient.
    """

    aliases = ("max_axis",)

    @staticmethod
    def forward(xp, a, data, *, out):
        kept = out.reshape(_kept(a, data.shape))
        xp.maximum.reduce(data, axis=reduced_axes(a, data.ndim), keepdims=True, out=kept)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = _kept(a, data.shape)
        xp.equal(data, out.reshape(kept), out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)


class min(_Reduce):
    """Smallest element over axes; nan if there is one.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Every element equal to the minimum gets the whole gradient.
    """

    aliases = ("min_axis",)

    @staticmethod
    def forward(xp, a, data, *, out):
        kept = out.reshape(_kept(a, data.shape))
        xp.minimum.reduce(data, axis=reduced_axes(a, data.ndim), keepdims=True, out=kept)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = _kept(a, data.shape)
        xp.equal(data, out.reshape(kept), out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)


class norm(_Reduce):
    """Norm over axes: ``ord=2`` root of the sum of squares, ``ord=1`` sum of absolute values.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    The gradient is ``d_out * data / out`` (for 1: ``d_out * sign(data)``), and 0 where the norm is 0.
    """

    @dataclass(frozen=True)
    class Attrs:
        ord: int = 2
        axis: tuple[int, ...] | None = None
        out_dtype: str | None = None
        keepdims: bool = False

        def __post_init__(self) -> None:
            if self.ord not in (1, 2):
                raise OpAttributeError(f"parameter 'ord' must be 1 or 2, got {self.ord}.")
            if self.out_dtype is not None:
                raise OpAttributeError(
                    f"parameter 'out_dtype' must be None, got {self.out_dtype!r}; Cast the result instead."
                )

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return fold_bytes(inputs[0], (_kept(a, inputs[0]),), dtype)

    @staticmethod
    def forward(xp, a, data, *, out, work):
        def square(into, x):
            xp.multiply(x, x, out=into)

        def size(into, x):
            xp.absolute(x, out=into)

        fold(xp, square if a.ord == 2 else size, (data,), out.reshape(_kept(a, data.shape)), work)
        if a.ord == 2:
            xp.sqrt(out, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        kept = _kept(a, data.shape)
        if a.ord == 1:
            xp.sign(data, out=d_data)
        else:
            # Where the norm is 0 so is all the data: dividing by 1 instead gives 0.
            xp.equal(out.reshape(kept), 0, out=d_data)
            xp.add(d_data, out.reshape(kept), out=d_data)
            xp.divide(data, d_data, out=d_data)
        xp.multiply(d_data, d_out.reshape(kept), out=d_data)


@dataclass(frozen=True)
class ArgAttrs:
    axis: int | None = None
    keepdims: bool = False


class _Arg(_Reduce):
    """Positions along one axis, or in the flattened array."""

    Attrs = ArgAttrs


class argmax(_Arg):
    """Position of the first largest element along `axis`, in the dtype of `data`.

    data: (...)  ->  out: `data`'s shape without `axis`. With ``axis=None``: the position in the flattened
    array, shape (1,). No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        _positions(xp, xp.argmax, xp.greater, a, data, out)


class argmin(_Arg):
    """Position of the first smallest element along `axis`, in the dtype of `data`.

    data: (...)  ->  out: `data`'s shape without `axis`. With ``axis=None``: the position in the flattened
    array, shape (1,). No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        _positions(xp, xp.argmin, xp.less, a, data, out)


def _positions(xp, find, better, a, data, out):
    """`find` along the axis, in blocks of at most PIECE elements: along an inner axis it copies its input."""
    if a.axis is None:
        out[...] = find(data)
        return
    axis = a.axis % data.ndim
    outer, length, inner = product(data.shape[:axis]), data.shape[axis], product(data.shape[axis + 1 :])
    cube, flat = data.reshape(outer, length, inner), out.reshape(outer, inner)
    if length > PIECE:
        wide = rows = 1
    else:
        wide = inner if inner * length <= PIECE else PIECE // length
        rows = PIECE // (length * wide)
    for i in range(0, outer, rows):
        for j in range(0, inner, wide):
            block = cube[i : i + rows, :, j : j + wide]
            place = find(block[:, :PIECE], axis=1)
            for begin in range(PIECE, length, PIECE):  # only where rows and wide are 1
                other = begin + find(block[:, begin : begin + PIECE], axis=1)
                if better(block[0, other[0, 0], 0], block[0, place[0, 0], 0]):
                    place = other
            flat[i : i + rows, j : j + wide] = place
