"""Padding of arrays."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ..blocks import require_finite, weak
from .adjoint import given
from .reshape import Move

Index = tuple[Any, ...]  # an ellipsis, then slices: an array also where there are no axes


class Pad(Move):
    """`data` with a border.

    data: (...)  ->  out: axis i longer by ``pad_width[2 * i]`` before and ``pad_width[2 * i + 1]`` after.
    mode: "constant" fills the border with `constant_value`; "edge" repeats the outermost element; "reflect"
    counts back from it, not repeating it, so that a border is shorter than the axis. Any number of axes,
    all of which may be padded (MXNet: 4 or 5, not the first two).
    """

    aliases = ("pad",)

    @record
    class Attrs:
        mode: Literal["constant", "edge", "reflect"]
        pad_width: tuple[int, ...]
        constant_value: float = 0.0

        def __post_init__(self) -> None:
            if len(self.pad_width) % 2 or any(n < 0 for n in self.pad_width):
                raise OpAttributeError(
                    f"pad_width must be two lengths for each axis, none negative, got {self.pad_width}."
                )

    @staticmethod
    def infer_shape(a, data):
        if len(a.pad_width) != 2 * len(data):
            raise ShapeError(f"pad_width {a.pad_width} must be two numbers for each axis of data {data}.")
        for d, pair in zip(data, _pairs(a)):
            if a.mode == "edge" and not d and any(pair):
                raise ShapeError(f"an axis of length 0 has no edge to repeat: data {data}.")
            if a.mode == "reflect" and any(n >= d for n in pair if n):
                raise ShapeError(f"pad_width {a.pad_width} must be smaller than the axes of data {data}.")
        return (data,), (tuple(d + i + j for d, (i, j) in zip(data, _pairs(a))),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        if a.mode == "constant":
            require_finite(a.constant_value, dtypes[0], "constant_value")
        return super().infer_type(a, *dtypes)

    @staticmethod
    def forward(xp, a, data, *, out):
        if a.mode == "constant":
            out.fill(weak(out, a.constant_value))
            xp.copyto(out[_middle(a, data.shape)], data)
            return
        for target, source in _blocks(a, data.shape):
            xp.copyto(out[target], data[source])

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out[_middle(a, d_data.shape)])
        if a.mode != "constant":
            _add_borders(a, d_out, d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._unpad(heads["out"], **{**given(a), "constant_value": 0.0})}


class _unpad(Move):
    """`data` without its border, the border's elements added to those they were copied from.

    data: (...)  ->  out: axis i shorter by ``pad_width[2 * i]`` and ``pad_width[2 * i + 1]``: the gradient
    of `Pad`.
    """

    Attrs = Pad.Attrs

    @staticmethod
    def infer_shape(a, data):
        if len(a.pad_width) != 2 * len(data):
            raise ShapeError(f"pad_width {a.pad_width} must be two numbers for each axis of data {data}.")
        out = tuple(d - i - j for d, (i, j) in zip(data, _pairs(a)))
        if any(d < 0 for d in out) or Pad.infer_shape(a, out)[1][0] != data:
            raise ShapeError(f"data {data} has no border of {a.pad_width}.")
        return (data,), (out,)

    @staticmethod
    def forward(xp, a, data, *, out):
        Pad.backward(xp, a, data, d_data=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        Pad.forward(xp, a, d_out, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.Pad(heads["out"], **given(a))}


def _pairs(a: Any) -> list[tuple[int, int]]:
    return list(zip(a.pad_width[::2], a.pad_width[1::2]))


def _middle(a: Any, data: Shape) -> Index:
    """The position of `data` in the padded array."""
    return (..., *(slice(i, i + d) for d, (i, _) in zip(data, _pairs(a))))


def _pieces(a: Any, length: int, before: int, behind: int) -> list[tuple[slice, slice]]:
    """Parts of the padded array along one axis, and the parts of `data` that they copy."""
    if a.mode == "edge":
        front, back = slice(0, 1), slice(length - 1, length)
    else:
        front, back = _backwards(1, before), _backwards(length - 1 - behind, behind)
    pieces = [(slice(0, before), front)] if before else []
    pieces.append((slice(before, before + length), slice(0, length)))
    if behind:
        pieces.append((slice(before + length, before + length + behind), back))
    return pieces


def _backwards(begin: int, count: int) -> slice:
    """[begin, begin + count) in reverse order."""
    return slice(begin + count - 1, begin - 1 if begin else None, -1)


def _blocks(a: Any, data: Shape) -> list[tuple[Index, Index]]:
    """Parts of the padded array and what they copy: the middle and, for n padded axes, 3**n - 1 more.

    A part of the border in mode "edge" copies a part that is 1 long along the axis.
    """
    blocks: list[tuple[Index, Index]] = [((...,), (...,))]
    for length, (before, behind) in zip(data, _pairs(a)):
        pieces = _pieces(a, length, before, behind)
        blocks = [((*t, target), (*s, source)) for t, s in blocks for target, source in pieces]
    return blocks


def _add_borders(a: Any, d_out: Any, d_data: Any) -> None:
    """Add every part of the border to the elements it was copied from."""
    middle = _middle(a, d_data.shape)
    for target, source in _blocks(a, d_data.shape):
        if target == middle:
            continue
        into, part = d_data[source], d_out[target]
        # Along an axis where `into` is 1 long, the part is added one slice at a time.
        lengths = [range(n if m < n else 1) for m, n in zip(into.shape, part.shape)]
        for offset in product(*lengths):
            into += part[tuple(slice(i, i + n) for i, n in zip(offset, into.shape))]
