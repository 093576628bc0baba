"""Positions of the largest and smallest elements."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ...core.errors import ShapeError
from ...core.record import record
from ..declared import Declared
from .reduce import NonEmpty


@record
class ArgAttrs:
    axis: int | None = None
    keepdims: bool = False


class _Arg(NonEmpty):
    """Base: positions along one axis, or in the flattened array, where this reduction finds what it gives."""

    abstract = True
    Attrs: ClassVar[type] = ArgAttrs
    kind: ClassVar[str]

    @classmethod
    def compute(cls, t, a, data):
        return _computed(t, cls.kind, data, a.axis)


class argmax(_Arg):
    """Position of the first largest element along `axis`, in the dtype of `data`.

    data: (...)  ->  out: `data`'s shape without `axis`. With ``axis=None``: the position in the flattened
    array, shape (1,). No gradient.
    """

    kind = "reduce_max"


class argmin(_Arg):
    """Position of the first smallest element along `axis`, in the dtype of `data`.

    data: (...)  ->  out: `data`'s shape without `axis`. With ``axis=None``: the position in the flattened
    array, shape (1,). No gradient.
    """

    kind = "reduce_min"


class argmax_channel(Declared):
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


def _computed(t, kind, data, axis):
    """The first position of the extreme, or of the first nan."""
    if axis is None:
        data, axis = t.view(data, (prod(data.shape),)), 0
    length = data.shape[axis]
    extreme = t.reduce(kind, data, (axis,))
    place = t.where("ne", data, data, t.index(data, axis), float(length))
    place = t.select(t.eq(data, extreme), t.index(data, axis), place)
    return {"out": t.min(place, (axis,))}
