"""Operators that put elements in another order or repeat them."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from .adjoint import adjoint_of
from .reshape import axis_of, Rearrangement


class transpose(Rearrangement):
    """Axes in another order: `axes`, or reversed.

    data: (...)  ->  out: axis i of `out` is axis ``axes[i]`` of `data`. A copy.
    """

    @record
    class Attrs:
        axes: tuple[int, ...] = ()

    @staticmethod
    def infer_shape(a, data):
        axes = _order(a, len(data))
        if sorted(axes) != list(range(len(data))):
            raise ShapeError(f"axes {a.axes} must name each of the {len(data)} axes of data {data} once.")
        return (data,), (tuple(data[i] for i in axes),)

    @staticmethod
    def infer_inputs(a, inputs, outputs):
        (out,) = outputs
        axes = _order(a, len(out or ()))
        if out is None or sorted(axes) != list(range(len(out))):
            return inputs
        return (tuple(out[axes.index(i)] for i in range(len(out))),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data.transpose(a.axes or None))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        order = _order(a, len(a.axes))
        return {"data": w.transpose(heads["out"], axes=tuple(order.index(i) for i in range(len(order))))}


def _order(a: Any, rank: int) -> list[int]:
    """The axes counted from the front."""
    if not a.axes:
        return list(range(rank))[::-1]
    return [i + rank if -rank <= i < 0 else i for i in a.axes]


class SwapAxis(Rearrangement):
    """Axes `dim1` and `dim2` exchanged. data: (...)  ->  out: (...). A copy."""

    aliases = ("swapaxes",)

    @record
    class Attrs:
        dim1: int = 0
        dim2: int = 0

    @staticmethod
    def infer_shape(a, data):
        i, j = axis_of(a.dim1, len(data)), axis_of(a.dim2, len(data))
        out = list(data)
        out[i], out[j] = out[j], out[i]
        return (data,), (tuple(out),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data.swapaxes(a.dim1, a.dim2))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.SwapAxis(heads["out"], dim1=a.dim1, dim2=a.dim2)}


class tile(Rearrangement):
    """`data` repeated as a whole, ``reps[i]`` times along axis i (aligned at the last axes).

    data: (...)  ->  out: (...). The gradient sums over the repetitions.
    """

    @record
    class Attrs:
        reps: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        if any(r < 0 for r in a.reps):
            raise ShapeError(f"reps {a.reps} must not be negative.")
        reps, dims = _tiles(a, data)
        return (data,), (tuple(r * d for r, d in zip(reps, dims)),)

    @staticmethod
    def forward(xp, a, data, *, out):
        reps, dims = _tiles(a, data.shape)
        xp.copyto(out.reshape(_pairs(reps, dims)), data.reshape(_pairs((1,) * len(dims), dims)))


_adjoint_tile = adjoint_of(tile)


def _tiles(a: Any, data: Shape) -> tuple[Shape, Shape]:
    rank = max(len(a.reps), len(data))
    return (1,) * (rank - len(a.reps)) + a.reps, (1,) * (rank - len(data)) + data


def _pairs(reps: Shape, dims: Shape) -> Shape:
    """(r0, d0, r1, d1, ...)"""
    return tuple(n for pair in zip(reps, dims) for n in pair)


class repeat(Rearrangement):
    """Each element `repeats` times in a row along `axis`; of the flattened array when `axis` is None.

    data: (...)  ->  out: (...). The gradient sums over the repetitions.
    """

    @record
    class Attrs:
        repeats: int
        axis: int | None = None

    @staticmethod
    def infer_shape(a, data):
        if a.repeats < 0:
            raise ShapeError(f"repeats must not be negative, got {a.repeats}.")
        if a.axis is None:
            return (data,), ((prod(data) * a.repeats,),)
        axis = axis_of(a.axis, len(data))
        return (data,), ((*data[:axis], data[axis] * a.repeats, *data[axis + 1 :]),)

    @staticmethod
    def forward(xp, a, data, *, out):
        outer, inner = _halves(a, data.shape)
        xp.copyto(out.reshape(outer, a.repeats, inner), data.reshape(outer, 1, inner))


_adjoint_repeat = adjoint_of(repeat)


def _halves(a: Any, shape: Shape) -> tuple[int, int]:
    """Elements of the axes up to and including the repeated one, and of those after it."""
    if a.axis is None:
        return prod(shape), 1
    axis = a.axis % len(shape)
    return prod(shape[: axis + 1]), prod(shape[axis + 1 :])


class reverse(Rearrangement):
    """Elements in reverse order along the axes `axis`. data: (...)  ->  out: (...), same shape."""

    aliases = ("flip",)

    @record
    class Attrs:
        axis: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        axes = [axis_of(i, len(data)) for i in a.axis]
        if len(set(axes)) < len(axes):
            raise ShapeError(f"axis must name each axis once, got {a.axis} for data {data}.")
        return (data,), (data,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, xp.flip(data, a.axis))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.reverse(heads["out"], axis=a.axis)}


class roll(Rearrangement):
    """Elements rotated by `shift` positions along `axis`; of the flattened array when `axis` is None.

    data: (...)  ->  out: (...), same shape: along each axis, index i goes to (i + shift) mod length. `shift`
    and `axis` are equally long, or there is one shift for all axes (numpy.roll, torch.roll).
    """

    @record
    class Attrs:
        shift: tuple[int, ...]
        axis: tuple[int, ...] | None = None

        def __post_init__(self) -> None:
            wanted = 1 if self.axis is None else len(self.axis)
            if len(self.shift) not in (1, wanted):
                raise OpAttributeError(f"shift {self.shift} and axis {self.axis} must be equally long.")

    @staticmethod
    def infer_shape(a, data):
        for i in a.axis or ():
            axis_of(i, len(data))
        return (data,), (data,)

    @staticmethod
    def forward(xp, a, data, *, out):
        """Copy the two pieces of each rolled axis, 2**n blocks for n axes, without a temporary."""
        source, target = (data.reshape(-1), out.reshape(-1)) if a.axis is None else (data, out)
        axes = (0,) if a.axis is None else a.axis
        total = [0] * source.ndim
        for axis, shift in zip(axes, a.shift * len(axes) if len(a.shift) == 1 else a.shift):
            total[axis] += shift
        blocks: list[tuple[tuple[slice, ...], tuple[slice, ...]]] = [((), ())]
        for length, shift in zip(source.shape, total):
            s = shift % length if length else 0
            pieces = [(slice(0, length - s), slice(s, length))]
            if s:
                pieces.append((slice(length - s, length), slice(0, s)))
            blocks = [((*f, x), (*t, y)) for f, t in blocks for x, y in pieces]
        for source_part, target_part in blocks:
            xp.copyto(target[..., *target_part], source[..., *source_part])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.roll(heads["out"], shift=tuple(-s for s in a.shift), axis=a.axis)}
