"""Operators that take the shape of another array."""

from __future__ import annotations

from math import prod

import numpy as np

from ...core.dtype import is_floating
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ..blocks import copy, PIECE
from .reshape import axis_of, Move


class reshape_like(Move):
    """The elements of `lhs` under the shape of `rhs`.

    lhs: (...);  rhs: (...), read for its shape only  ->  out: the axes [`lhs_begin`, `lhs_end`) of `lhs`
    replaced by the axes [`rhs_begin`, `rhs_end`) of `rhs`; None is the first or the end, negative numbers
    count from the end. Costs nothing when done in place.
    """

    inputs = ("lhs", "rhs")
    shape_only = ("rhs",)
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}
    same_type = ("lhs",)

    @record
    class Attrs:
        lhs_begin: int | None = None
        lhs_end: int | None = None
        rhs_begin: int | None = None
        rhs_end: int | None = None

    @staticmethod
    def infer_shape(a, lhs, rhs):
        i, j = _range(a.lhs_begin, a.lhs_end, lhs, "lhs")
        k, n = _range(a.rhs_begin, a.rhs_end, rhs, "rhs")
        if prod(lhs[i:j]) != prod(rhs[k:n]):
            raise ShapeError(f"axes {lhs[i:j]} of lhs {lhs} do not hold as much as {rhs[k:n]} of rhs {rhs}.")
        return (lhs, rhs), ((*lhs[:i], *rhs[k:n], *lhs[j:]),)

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        copy(xp, lhs, out)

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs):
        copy(xp, d_out, d_lhs)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"lhs": w.reshape_like(heads["out"], ins["lhs"])}


def _range(begin, end, shape, what):
    """[begin, end) of the axes of `shape`, counted from the front."""
    rank = len(shape)
    first = 0 if begin is None else begin + rank if begin < 0 else begin
    last = rank if end is None else end + rank if end < 0 else end
    if not 0 <= first <= last <= rank:
        raise ShapeError(f"[{begin}, {end}) are not axes of {what} {shape}.")
    return first, last


class _identity_with_attr_like_rhs(Move):
    """`lhs` as it is, of the shape of `rhs`.

    lhs, rhs: (...), of one shape  ->  out: as `lhs`. `rhs` has no gradient.
    """

    inputs = ("lhs", "rhs")
    shape_only = ("rhs",)
    same_shape = True
    in_place = {"out": "lhs"}
    gradient_is = {"lhs": "d_out"}
    elementwise = True

    @staticmethod
    def compute(w, a, lhs, rhs):
        return {"out": lhs}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        copy(xp, lhs, out)


class slice_like(Move):
    """`data` cut to the lengths of `shape_like`, from the beginning.

    data: (...);  shape_like: (...), read for its shape only  ->  out: (...), each axis in `axes` as long as
    that of `shape_like`; all axes without `axes`, then both have as many. The gradient is 0 after the cut.
    """

    inputs = ("data", "shape_like")
    shape_only = ("shape_like",)
    same_type = ("data",)

    @record
    class Attrs:
        axes: tuple[int, ...] = ()

    @staticmethod
    def infer_shape(a, data, shape_like):
        if not a.axes and len(data) != len(shape_like):
            raise ShapeError(f"without axes, data {data} and shape_like {shape_like} must have as many axes.")
        out = list(data)
        for axis in a.axes or range(len(data)):
            i, j = axis_of(axis, len(data)), axis_of(axis, len(shape_like), "shape_like")
            if shape_like[j] > data[i]:
                raise ShapeError(f"axis {axis} of data {data} is shorter than that of {shape_like}.")
            out[i] = shape_like[j]
        return (data, shape_like), (tuple(out),)

    @staticmethod
    def forward(xp, a, data, shape_like, *, out):
        xp.copyto(out, data[_corner(out)])

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        d_data.fill(0)
        xp.copyto(d_data[_corner(d_out)], d_out)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._grow_like(heads["out"], ins["data"])}


class _grow_like(Move):
    """`data` padded with zeros at the end, up to the shape of `like`: the gradient of `slice_like`.

    data: (...);  like: (...), as many axes, none shorter, read for its shape only  ->  out: the shape of
    `like`.
    """

    inputs = ("data", "like")
    shape_only = ("like",)
    same_type = ("data",)

    @staticmethod
    def infer_shape(a, data, like):
        if len(data) != len(like) or any(d > n for d, n in zip(data, like)):
            raise ShapeError(f"data {data} does not fit into like {like}.")
        return (data, like), (like,)

    @staticmethod
    def forward(xp, a, data, like, *, out):
        out.fill(0)
        xp.copyto(out[_corner(data)], data)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out[_corner(d_data)])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.slice_like(heads["out"], ins["data"])}


def _corner(array):
    """The index of a part as large as `array`, at the beginning of every axis."""
    return (..., *(slice(0, n) for n in array.shape))


class ContribArangeLike(Move):
    """`start`, `start` + `step`, ..., each `repeat` times, as many as `data` has elements.

    data: (...), read for its shape and dtype only  ->  out: the shape of `data`; (N,) with `axis`, of length
    N. No gradient. `ctx` is where the array will live.
    """

    op_name = "_contrib_arange_like"
    shape_only = ("data",)

    @record
    class Attrs:
        start: float = 0.0
        step: float = 1.0
        repeat: int = 1
        ctx: str = ""
        axis: int | None = None

        def __post_init__(self) -> None:
            if self.repeat < 1:
                raise OpAttributeError(f"repeat must be at least 1, got {self.repeat}.")

    @staticmethod
    def infer_shape(a, data):
        return (data,), (data if a.axis is None else (data[axis_of(a.axis, len(data))],),)

    @staticmethod
    def forward(xp, a, data, *, out):
        start, step = in_steps_of(out.dtype, a.start, a.step)
        fill_range(xp, out, start, step, a.repeat)


def in_steps_of(dtype, start, step):
    """`start` and `step`; for whole numbers cut towards 0, as numpy and MXNet do."""
    return (start, step) if is_floating(dtype) else (int(start), int(step))


def fill_range(xp, out, start, step, repeat):
    """``start + (i // repeat) * step`` into the i-th element of `out`, formed in float64."""
    flat = out.reshape(-1)
    for first in range(0, flat.size, PIECE):
        part = flat[first : first + PIECE]
        values = xp.arange(first, first + part.size) // repeat * step
        values += start
        xp.copyto(part, values, casting="unsafe")


class shape_array(Move):
    """The shape of `data` as an array. data: (...)  ->  out: (number of axes,) int64. No gradient."""

    shape_only = ("data",)

    @staticmethod
    def infer_shape(a, data):
        return (data,), ((len(data),),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (np.dtype("int64"),)

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data.shape


class size_array(Move):
    """The number of elements of `data` as an array. data: (...)  ->  out: (1,) int64. No gradient."""

    shape_only = ("data",)

    @staticmethod
    def infer_shape(a, data):
        return (data,), ((1,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (np.dtype("int64"),)

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data.size


class ContribIndexArray(Move):
    """The index of every element, as an array. No gradient.

    data: (...), read for its shape only  ->  out: (..., n) int64, ``out[i, j, ...] = (i, j, ...)``, only the
    numbers for the axes in `axes` if they are given.
    """

    op_name = "_contrib_index_array"
    shape_only = ("data",)

    @record
    class Attrs:
        axes: tuple[int, ...] | None = None

    @staticmethod
    def infer_shape(a, data):
        axes = range(len(data)) if a.axes is None else [axis_of(i, len(data)) for i in a.axes]
        return (data,), ((*data, len(axes)),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (np.dtype("int64"),)

    @staticmethod
    def forward(xp, a, data, *, out):
        for k, axis in enumerate(range(data.ndim) if a.axes is None else a.axes):
            # Seen with `axis` first, each out[i] holds only i.
            into = xp.moveaxis(out[..., k], axis, 0)
            for first in range(0, len(into), PIECE):
                part = into[first : first + PIECE]
                part[...] = xp.arange(first, first + len(part)).reshape(-1, *(1,) * (part.ndim - 1))
