"""Layouts of the channel axis: after the batch, as users see arrays, or last, as kernels like it.

A layout is no hidden state of an array. An array with its channels last is an array of shape (N, *S, C),
converted by the two operators here; a pass of a backend puts them in.
"""

from __future__ import annotations

from typing import Any

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
    """Base: one axis moves to another position; the gradient moves it back."""

    abstract = True
    inputs = ("data",)
    Attrs = LayoutAttrs
    cheap = True
    flops_per_output = 0

    @classmethod
    def in_place_options(cls, a: Any) -> Any:
        return {} if a.moves else {"out": ("data",)}


class ChannelsLast(_Move):
    """The channel axis moved to the end, ``out[n, ..., c] = data[n, c, ...]``.

    data: (N, C, *S)  ->  out: (N, *S, C).
    """

    op_name = "_channels_last"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data,) = shapes
        out = last(data)
        _require_still(a, data)
        return (data,), (out,)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> None:
        _copy(xp, xp.moveaxis(data, 1, -1) if a.moves else data.reshape(last(data.shape)), out)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
        _copy(xp, xp.moveaxis(d_out, -1, 1), d_data)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": w._channels_first(heads["out"], moves=a.moves)}


class ChannelsFirst(_Move):
    """The last axis moved after the first, ``out[n, c, ...] = data[n, ..., c]``.

    data: (N, *S, C)  ->  out: (N, C, *S).
    """

    op_name = "_channels_first"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data,) = shapes
        out = first(data)
        _require_still(a, out)
        return (data,), (out,)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> None:
        _copy(xp, xp.moveaxis(data, -1, 1), out)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
        _copy(xp, xp.moveaxis(d_out, 1, -1), d_data)

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


def _require_still(a: Any, shape: Shape) -> None:
    if not a.moves and moves(shape):
        raise ShapeError(f"moves=False is for a single channel or position, not for {shape}.")


def _copy(xp: Any, source: Any, target: Any) -> None:
    if target is None or (source.size and xp.shares_memory(source, target)):
        return  # in place, as no byte moves
    target[...] = source
