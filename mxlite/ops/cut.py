"""Operators that cut arrays into parts and put parts together."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import OpAttributeError, ShapeError
from ..graph.opdef import Op
from .reshape import axis_of, Move


@functools.lru_cache(maxsize=4096)
def _limits(text: str, what: str) -> tuple[int | None, ...]:
    """ "(None, 2)" -> (None, 2)."""
    parts = [p.strip() for p in text.strip().strip("()[]").split(",")]
    try:
        return tuple(None if p == "None" else int(p) for p in parts if p)
    except ValueError:
        raise OpAttributeError(
            f"parameter {what!r} must be whole numbers or None, one for each axis, got {text!r}."
        ) from None


class slice(Move):
    """The part ``data[begin[0]:end[0]:step[0], begin[1]:end[1]:step[1], ...]``.

    data: (...)  ->  out: as many axes. None in `begin`, `end` or `step` means what it means in Python; axes
    beyond those named stay whole. The gradient is 0 outside the part.
    """

    aliases = ("crop",)

    @dataclass(frozen=True)
    class Attrs:
        # Text, because the numbers may be None.
        begin: str
        end: str
        step: str = "()"

        def __post_init__(self) -> None:
            for name in ("begin", "end", "step"):
                _limits(getattr(self, name), name)

    @staticmethod
    def infer_shape(a, data):
        keys = _slices(a)
        if len(keys) > len(data):
            raise ShapeError(f"begin {a.begin} names more axes than data {data} has.")
        out = tuple(len(range(*k.indices(d))) for k, d in zip(keys, data)) + data[len(keys) :]
        return (data,), (out,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data[_slices(a)])

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        d_data.fill(0)
        xp.copyto(d_data[_slices(a)], d_out)


def _slices(a: Any) -> tuple[builtins.slice, ...]:
    begin, end, step = _limits(a.begin, "begin"), _limits(a.end, "end"), _limits(a.step, "step")
    if len(begin) != len(end) or len(step) not in (0, len(begin)):
        raise ShapeError(f"begin {a.begin}, end {a.end} and step {a.step} must be equally long.")
    return tuple(builtins.slice(*limits) for limits in zip(begin, end, step or (None,) * len(begin)))


class slice_axis(Move):
    """The part ``[begin, end)`` of one axis; negative numbers count from its end, None is its end.

    data: (...)  ->  out: (...), `axis` cut to the part. The gradient is 0 outside the part.
    """

    @dataclass(frozen=True)
    class Attrs:
        axis: int
        begin: int
        end: int | None

    @staticmethod
    def infer_shape(a, data):
        axis = axis_of(a.axis, len(data))
        size = data[axis]
        begin = a.begin + size if a.begin < 0 else a.begin
        end = size if a.end is None else a.end + size if a.end < 0 else a.end
        if not 0 <= begin < end <= size:
            raise ShapeError(f"[{a.begin}, {a.end}) is not a part of axis {a.axis} of data {data}.")
        return (data,), ((*data[:axis], end - begin, *data[axis + 1 :]),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data[_part(a.axis % data.ndim, a.begin, a.end)])

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        d_data.fill(0)
        xp.copyto(d_data[_part(a.axis % d_data.ndim, a.begin, a.end)], d_out)


def _part(axis: int, begin: int | None, end: int | None) -> tuple[builtins.slice, ...]:
    return (builtins.slice(None),) * axis + (builtins.slice(begin, end),)


class SliceChannel(Move):
    """`data` cut along `axis` into `num_outputs` equal parts; `squeeze_axis` drops the axis, then 1 long.

    data: (...)  ->  output0, output1, ...: (...), all of one shape.
    """

    aliases = ("split",)
    variadic_outputs = "outs"

    @dataclass(frozen=True)
    class Attrs:
        num_outputs: int
        axis: int = 1
        squeeze_axis: bool = False

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return a.num_outputs

    @staticmethod
    def infer_shape(a, data):
        axis = axis_of(a.axis, len(data))
        if a.num_outputs < 1 or data[axis] % a.num_outputs:
            raise ShapeError(f"num_outputs={a.num_outputs} must divide axis {a.axis} of data {data}.")
        length = data[axis] // a.num_outputs
        if a.squeeze_axis and length != 1:
            raise ShapeError(
                f"squeeze_axis needs parts of length 1, axis {a.axis} of data {data} gives {length}."
            )
        part = (*data[:axis], *(() if a.squeeze_axis else (length,)), *data[axis + 1 :]) or (1,)
        return (data,), (part,) * a.num_outputs

    @staticmethod
    def forward(xp, a, data, *, outs):
        for out, part in zip(outs, _parts(a, data)):
            if out is not None:
                xp.copyto(out.reshape(part.shape), part)

    @staticmethod
    def backward(xp, a, d_outs, *, d_data):
        for d_out, part in zip(d_outs, _parts(a, d_data)):
            if d_out is None:
                part[...] = 0
            else:
                xp.copyto(part, d_out.reshape(part.shape))


def _parts(a: Any, data: Any) -> Sequence[Any]:
    axis = a.axis % data.ndim
    length = data.shape[axis] // a.num_outputs
    return [data[_part(axis, i * length, (i + 1) * length)] for i in range(a.num_outputs)]


class Concat(Op):
    """Arrays one after another along the axis `dim`.

    args: `num_args` arrays (...), equal but for axis `dim`  ->  out: (...), `dim` as long as all of them.
    """

    aliases = ("concat",)
    variadic = "args"
    cheap = True

    @dataclass(frozen=True)
    class Attrs:
        num_args: int
        dim: int = 1

    @staticmethod
    def infer_shape(a, *shapes):
        first = shapes[0]
        axis = axis_of(a.dim, len(first), "arg0")
        for i, s in enumerate(shapes):
            if len(s) != len(first) or s[:axis] != first[:axis] or s[axis + 1 :] != first[axis + 1 :]:
                raise ShapeError(f"arg{i} {s} must equal arg0 {first} but for axis {a.dim}.")
        return shapes, ((*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :]),)

    @staticmethod
    def flops(a, inputs, outputs):
        return 0

    @staticmethod
    def forward(xp, a, *args, out):
        axis, begin = a.dim % out.ndim, 0
        for arg in args:
            end = begin + arg.shape[axis]
            xp.copyto(out[_part(axis, begin, end)], arg)
            begin = end

    @staticmethod
    def backward(xp, a, d_out, *, d_args, shapes):
        axis, begin = a.dim % d_out.ndim, 0
        for d_arg, shape in zip(d_args, shapes[0]):
            end = begin + shape[axis]
            if d_arg is not None:
                xp.copyto(d_arg, d_out[_part(axis, begin, end)])
            begin = end


class stack(Op):
    """Arrays of one shape along a new axis, at place `axis`; -1 is the end.

    args: `num_args` arrays (...)  ->  out: one axis more, `num_args` long.
    """

    variadic = "args"
    cheap = True

    @dataclass(frozen=True)
    class Attrs:
        num_args: int
        axis: int = 0

    @staticmethod
    def infer_shape(a, *shapes):
        first = shapes[0]
        for i, s in enumerate(shapes):
            if s != first:
                raise ShapeError(f"all arrays must have one shape, arg0 is {first}, arg{i} is {s}.")
        at = axis_of(a.axis, len(first) + 1, "the result")
        return shapes, ((*first[:at], len(shapes), *first[at:]),)

    @staticmethod
    def flops(a, inputs, outputs):
        return 0

    @staticmethod
    def forward(xp, a, *args, out):
        before = (builtins.slice(None),) * (a.axis % out.ndim)
        for i, arg in enumerate(args):
            xp.copyto(out[(*before, i)], arg)

    @staticmethod
    def backward(xp, a, d_out, *, d_args):
        before = (builtins.slice(None),) * (a.axis % d_out.ndim)
        for i, d_arg in enumerate(d_args):
            if d_arg is not None:
                xp.copyto(d_arg, d_out[(*before, i)])
