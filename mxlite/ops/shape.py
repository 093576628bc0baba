"""Operators that put elements in another order, repeat them, or change their dtype."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..core.dtype import as_dtype
from ..core.errors import ShapeError
from ..graph.ir import Shape
from .reshape import axis_of, Move


class transpose(Move):
    """Axes in another order: `axes`, or reversed.

    data: (...)  ->  out: axis i of `out` is axis ``axes[i]`` of `data`. A copy.
    """

    @dataclass(frozen=True)
    class Attrs:
        axes: tuple[int, ...] = ()

    @staticmethod
    def infer_shape(a, data):
        axes = a.axes or range(len(data))[::-1]
        if sorted(axes) != list(range(len(data))):
            raise ShapeError(f"axes {a.axes} must name each of the {len(data)} axes of data {data} once.")
        return (data,), (tuple(data[i] for i in axes),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data.transpose(a.axes or None))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        # d_data seen with its axes in the output's order is d_out.
        xp.copyto(d_data.transpose(a.axes or None), d_out)


class SwapAxis(Move):
    """Axes `dim1` and `dim2` exchanged. data: (...)  ->  out: (...). A copy."""

    aliases = ("swapaxes",)

    @dataclass(frozen=True)
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
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out.swapaxes(a.dim1, a.dim2))


class tile(Move):
    """`data` repeated as a whole, ``reps[i]`` times along axis i (aligned at the last axes).

    data: (...)  ->  out: (...). The gradient sums over the repetitions.
    """

    @dataclass(frozen=True)
    class Attrs:
        reps: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        if any(r < 1 for r in a.reps):
            raise ShapeError(f"reps {a.reps} must be at least 1.")
        reps, dims = _tiles(a, data)
        return (data,), (tuple(r * d for r, d in zip(reps, dims)),)

    @staticmethod
    def forward(xp, a, data, *, out):
        reps, dims = _tiles(a, data.shape)
        xp.copyto(out.reshape(_pairs(reps, dims)), data.reshape(_pairs((1,) * len(dims), dims)))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        reps, dims = _tiles(a, d_data.shape)
        axes = tuple(range(0, 2 * len(dims), 2))
        xp.add.reduce(d_out.reshape(_pairs(reps, dims)), axis=axes, out=d_data.reshape(dims))


def _tiles(a: Any, data: Shape) -> tuple[Shape, Shape]:
    rank = max(len(a.reps), len(data))
    return (1,) * (rank - len(a.reps)) + a.reps, (1,) * (rank - len(data)) + data


def _pairs(reps: Shape, dims: Shape) -> Shape:
    """(r0, d0, r1, d1, ...)"""
    return tuple(n for pair in zip(reps, dims) for n in pair)


class repeat(Move):
    """Each element `repeats` times in a row along `axis`; of the flattened array when `axis` is None.

    data: (...)  ->  out: (...). The gradient sums over the repetitions.
    """

    @dataclass(frozen=True)
    class Attrs:
        repeats: int
        axis: int | None = None

    @staticmethod
    def infer_shape(a, data):
        if a.repeats < 1:
            raise ShapeError(f"repeats must be at least 1, got {a.repeats}.")
        if a.axis is None:
            return (data,), ((prod(data) * a.repeats,),)
        axis = axis_of(a.axis, len(data))
        return (data,), ((*data[:axis], data[axis] * a.repeats, *data[axis + 1 :]),)

    @staticmethod
    def forward(xp, a, data, *, out):
        outer = _outer(a, data.shape)
        xp.copyto(out.reshape(outer, a.repeats, -1), data.reshape(outer, 1, -1))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        outer = _outer(a, d_data.shape)
        xp.add.reduce(d_out.reshape(outer, a.repeats, -1), axis=1, out=d_data.reshape(outer, -1))


def _outer(a: Any, shape: Shape) -> int:
    """Elements of the axes up to and with the repeated one."""
    return prod(shape) if a.axis is None else prod(shape[: a.axis % len(shape) + 1])


class reverse(Move):
    """Elements in reverse order along the axes `axis`. data: (...)  ->  out: (...), same shape."""

    aliases = ("flip",)

    @dataclass(frozen=True)
    class Attrs:
        axis: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        for i in a.axis:
            axis_of(i, len(data))
        return (data,), (data,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, xp.flip(data, a.axis))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, xp.flip(d_out, a.axis))


class Cast(Move):
    """The same numbers in another dtype; to whole numbers they are cut towards 0.

    data: (...)  ->  out: (...) of `dtype`. The gradient is cast back.
    """

    aliases = ("cast",)
    same_shape = True

    @dataclass(frozen=True)
    class Attrs:
        dtype: str

        def __post_init__(self) -> None:
            as_dtype(self.dtype)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (as_dtype(a.dtype),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out, casting="unsafe")
