"""Layouts of the channel axis: after the batch, as users see arrays, or last, as kernels like it.

A layout is no hidden state of an array. An array with its channels last is an array of shape (N, *S, C),
converted by the two operators here; a pass of a backend puts them in.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..core.errors import OpAttributeError, ShapeError
from ..core.record import record
from ..graph.ir import Shape
from ..graph.opdef import Op, Shapes


@record
class LayoutAttrs:
    """`moves` False: the channel axis or all spatial axes have length 1, so no byte moves."""

    moves: bool = True


class FixedLayout:
    """Base beside the parameters of an operator: gives those of its channels-last form, without a layout."""

    layout: str | None

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]  # of the parameters
        if self.layout is not None:
            raise OpAttributeError(f"layout is fixed: channels last, got {self.layout!r}.")


class _Move(Op):
    """Base: one axis moves to another position, to the end if `to_last`; the gradient moves it back."""

    abstract = True
    inputs = ("data",)
    Attrs = LayoutAttrs
    cheap = True
    flops_per_output = 0
    to_last: ClassVar[bool]

    @classmethod
    def in_place_options(cls, a: Any) -> Any:
        return {} if a.moves else {"out": ("data",)}

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data,) = shapes
        out = last(data) if cls.to_last else first(data)
        plain = data if cls.to_last else out
        if not a.moves and moves(plain):
            raise ShapeError(f"moves=False is for a single channel or position, not for {plain}.")
        return (data,), (out,)

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, *, out: Any) -> None:
        _move(xp, data, out, cls.to_last)

    @classmethod
    def backward(cls, xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
        _move(xp, d_out, d_data, not cls.to_last)


class ChannelsLast(_Move):
    """The channel axis moved to the end, ``out[n, ..., c] = data[n, c, ...]``.

    data: (N, C, *S)  ->  out: (N, *S, C).
    """

    op_name = "_channels_last"
    to_last = True

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": w._channels_first(heads["out"], moves=a.moves)}


class ChannelsFirst(_Move):
    """The last axis moved after the first, ``out[n, c, ...] = data[n, ..., c]``.

    data: (N, *S, C)  ->  out: (N, C, *S).
    """

    op_name = "_channels_first"
    to_last = False

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": w._channels_last(heads["out"], moves=a.moves)}


def last(shape: Shape) -> Shape:
    """(N, C, *S) -> (N, *S, C). Raises ShapeError for fewer than two axes."""
    if len(shape) < 2:
        raise ShapeError(f"data must have a channel axis behind the batch axis, got {shape}.")
    return (shape[0], *shape[2:], shape[1])


def first(shape: Shape) -> Shape:
    """(N, *S, C) -> (N, C, *S). Raises ShapeError for fewer than two axes."""
    if len(shape) < 2:
        raise ShapeError(f"data must have a channel axis behind the batch axis, got {shape}.")
    return (shape[0], shape[-1], *shape[1:-1])


def moves(shape: Shape) -> bool:
    """True if the bytes of (N, C, *S) move when channels become the last axis."""
    return shape[1] > 1 and any(d > 1 for d in shape[2:])


def _move(xp: Any, source: Any, target: Any, to_last: bool) -> None:
    if target is None or (source.size and xp.shares_memory(source, target)):
        return  # in place, as no byte moves
    target[...] = xp.moveaxis(source, 1, -1) if to_last else xp.moveaxis(source, -1, 1)
