"""Positions of the largest and smallest elements."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import MOST_COUNTED, PIECE
from .reduce import NonEmpty


@record
class ArgAttrs:
    axis: int | None = None
    keepdims: bool = False


class _Arg(NonEmpty):
    """Base: positions along one axis, or in the flattened array, found by these functions of numpy."""

    abstract = True
    Attrs: ClassVar[type] = ArgAttrs
    find: ClassVar[str]
    better: ClassVar[str]

    @classmethod
    def compute(cls, t, a, data):
        return _computed(t, "reduce_max" if cls.better == "greater" else "reduce_min", data, a.axis)

    @classmethod
    def forward(cls, xp, a, data, *, out):
        _positions(xp, getattr(xp, cls.find), getattr(xp, cls.better), a, data, out)


class argmax(_Arg):
    """Position of the first largest element along `axis`, in the dtype of `data`.

    data: (...)  ->  out: `data`'s shape without `axis`. With ``axis=None``: the position in the flattened
    array, shape (1,). No gradient.
    """

    find, better = "argmax", "greater"


class argmin(_Arg):
    """Position of the first smallest element along `axis`, in the dtype of `data`.

    data: (...)  ->  out: `data`'s shape without `axis`. With ``axis=None``: the position in the flattened
    array, shape (1,). No gradient.
    """

    find, better = "argmin", "less"


class argmax_channel(Op):
    """Position of the first largest element along axis 1, in the dtype of `data`.

    data: (N, C, ...)  ->  out: (N, ...). No gradient.
    """

    inputs = ("data",)
    accepts = "number"
    flops_per_input = 1

    @staticmethod
    def infer_shape(a, data):
        if len(data) < 2 or not data[1]:
            raise ShapeError(f"data must be (N, C, ...) with at least one channel, got {data}.")
        return (data,), ((data[0], *data[2:]),)

    @staticmethod
    def compute(t, a, data):
        return _computed(t, "reduce_max", data, 1)

    @staticmethod
    def forward(xp, a, data, *, out):
        _positions(xp, xp.argmax, xp.greater, ArgAttrs(axis=1), data, out)


def _computed(t, kind, data, axis):
    """The first position of the extreme, or of the first nan; None where float32 cannot count that far."""
    if axis is None:
        data, axis = t.view(data, (prod(data.shape),)), 0
    length = data.shape[axis]
    if length > MOST_COUNTED:
        return None
    extreme = t.reduce(kind, data, (axis,))
    place = t.where("ne", data, data, t.index(data, axis), float(length))
    place = t.select(t.eq(data, extreme), t.index(data, axis), place)
    return {"out": t.min(place, (axis,))}


def _positions(xp, find, better, a, data, out):
    """`find` along the axis, in blocks of at most PIECE elements: along an inner axis it copies its input."""
    if a.axis is None:
        out[...] = find(data)
        return
    if not out.size:
        return
    axis = a.axis % data.ndim
    outer, length, inner = prod(data.shape[:axis]), data.shape[axis], prod(data.shape[axis + 1 :])
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
