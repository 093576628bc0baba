"""Operators that cut a part out of an array, or write one into it."""

from __future__ import annotations

import builtins
import functools
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy, require_finite, weak
from .adjoint import adjoint_of, given
from .reshape import axis_of, Move, Rearrangement


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


class slice(Rearrangement):
    """The part ``data[begin[0]:end[0]:step[0], begin[1]:end[1]:step[1], ...]``.

    data: (...)  ->  out: as many axes. None in `begin`, `end` or `step` means what it means in Python; axes
    beyond those named stay whole. The gradient is 0 outside the part.
    """

    aliases = ("crop",)

    @record
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
        keys = slices_of(a)
        if len(keys) > len(data):
            raise ShapeError(f"begin {a.begin} names more axes than data {data} has.")
        out = tuple(len(range(*k.indices(d))) for k, d in zip(keys, data)) + data[len(keys) :]
        return (data,), (out,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data[slices_of(a)])


_adjoint_slice = adjoint_of(slice)


def slices_of(a: Any) -> tuple[builtins.slice, ...]:
    begin, end, step = _limits(a.begin, "begin"), _limits(a.end, "end"), _limits(a.step, "step")
    if len(begin) != len(end) or len(step) not in (0, len(begin)):
        raise ShapeError(f"begin {a.begin}, end {a.end} and step {a.step} must be equally long.")
    return tuple(builtins.slice(*limits) for limits in zip(begin, end, step or (None,) * len(begin)))


class slice_axis(Rearrangement):
    """The part ``[begin, end)`` of one axis; negative numbers count from its end, None is its end.

    data: (...)  ->  out: (...), `axis` cut to the part. The gradient is 0 outside the part.
    """

    @record
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
        if not 0 <= begin <= end <= size:
            raise ShapeError(f"[{a.begin}, {a.end}) is not a part of axis {a.axis} of data {data}.")
        return (data,), ((*data[:axis], end - begin, *data[axis + 1 :]),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data[part_of(a.axis % data.ndim, a.begin, a.end)])


_adjoint_slice_axis = adjoint_of(slice_axis)


def part_of(axis: int, begin: int | None, end: int | None) -> tuple[builtins.slice, ...]:
    """The index of [begin, end) along `axis`."""
    return (builtins.slice(None),) * axis + (builtins.slice(begin, end),)


class _slice_assign(Op):
    """`lhs` with `rhs` written into the part ``lhs[begin[0]:end[0]:step[0], ...]``.

    lhs: (...);  rhs: the shape that `slice` gives  ->  out: as `lhs`. The gradient of `lhs` is 0 in the part.
    """

    aliases = ("_crop_assign",)
    inputs = ("lhs", "rhs")
    inferred = ("rhs",)
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}
    cheap = True

    Attrs = slice.Attrs
    flops_per_output = 0

    @staticmethod
    def infer_shape(a, lhs, rhs=None):
        return (lhs, slice.infer_shape(a, lhs)[1][0]), (lhs,)

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        copy(xp, lhs, out)
        xp.copyto(out[slices_of(a)], rhs)

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs, d_rhs):
        if d_rhs is not None:
            xp.copyto(d_rhs, d_out[slices_of(a)])
        if d_lhs is not None:
            copy(xp, d_out, d_lhs)
            d_lhs[slices_of(a)] = 0

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {
            "lhs": w._slice_assign_scalar(heads["out"], scalar=0.0, **given(a)),
            "rhs": w.slice(heads["out"], **given(a)),
        }


class _slice_assign_scalar(Move):
    """`data` with the number `scalar` written into the part ``data[begin[0]:end[0]:step[0], ...]``.

    data: (...)  ->  out: as `data`. The gradient is 0 in the part.
    """

    aliases = ("_crop_assign_scalar",)
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}

    @record
    class Attrs:
        begin: str
        end: str
        step: str = "()"
        scalar: float = 0.0

        def __post_init__(self) -> None:
            for name in ("begin", "end", "step"):
                _limits(getattr(self, name), name)

    @staticmethod
    def infer_shape(a, data):
        slice.infer_shape(a, data)
        return (data,), (data,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_finite(a.scalar, dtypes[0], "scalar")
        return super().infer_type(a, *dtypes)

    @staticmethod
    def forward(xp, a, data, *, out):
        copy(xp, data, out)
        out[slices_of(a)] = weak(out, a.scalar)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        copy(xp, d_out, d_data)
        d_data[slices_of(a)] = 0

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._slice_assign_scalar(heads["out"], **{**given(a), "scalar": 0.0})}


class Crop(Op):
    """A window of an image, as large as another image or as `h_w`.

    args: data (N, C, H, W), and with `num_args` = 2 an image (..., h, w) read for its shape only
    ->  out: (N, C, h, w), from row and column `offset`, or from the middle with `center_crop`.
    The gradient is 0 outside the window. (The old layer; `slice` is its successor.)
    """

    variadic = "args"
    cheap = True
    flops_per_output = 0
    same_type = ("arg0",)

    @record
    class Attrs:
        num_args: int
        offset: tuple[int, ...] = (0, 0)
        h_w: tuple[int, ...] = (0, 0)
        center_crop: bool = False

        def __post_init__(self) -> None:
            if self.num_args not in (1, 2):
                raise OpAttributeError(f"num_args must be 1 or 2, got {self.num_args}.")
            for name in ("offset", "h_w"):
                if len(getattr(self, name)) != 2:
                    raise OpAttributeError(f"{name} must be two numbers, got {getattr(self, name)}.")

    @classmethod
    def shape_only_names(cls, a: Any) -> tuple[str, ...]:
        return cls.input_names(a)[1:]

    @staticmethod
    def infer_shape(a, *shapes):
        for i, s in enumerate(shapes):
            if len(s) != 4:
                raise ShapeError(f"arg{i} must be (N, C, H, W), got {s}.")
        data, size = shapes[0], shapes[1][2:] if a.num_args == 2 else a.h_w
        begin = _corner(a, data, size)
        if any(b < 0 or n < 0 or b + n > d for b, n, d in zip(begin, size, data[2:])):
            raise ShapeError(f"a window of {tuple(size)} at {begin} does not fit data {data}.")
        return shapes, ((*data[:2], *size),)

    @staticmethod
    def forward(xp, a, *args, out):
        xp.copyto(out, args[0][_window(a, args[0].shape, out.shape)])

    @staticmethod
    def backward(xp, a, d_out, *, d_args):
        d_data = d_args[0]
        if d_data is not None:
            d_data.fill(0)
            xp.copyto(d_data[_window(a, d_data.shape, d_out.shape)], d_out)
        if len(d_args) > 1 and d_args[1] is not None:
            d_args[1].fill(0)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"arg0": w._uncrop(heads["out"], ins["arg0"], offset=a.offset, center_crop=a.center_crop)}


def _corner(a, data, size):
    """Row and column where the window begins."""
    return tuple((d - n) // 2 for d, n in zip(data[2:], size)) if a.center_crop else a.offset


def _window(a, data, out):
    i, j = _corner(a, data, out[2:])
    return (..., builtins.slice(i, i + out[2]), builtins.slice(j, j + out[3]))


class _uncrop(Op):
    """`data` in a window of zeros: the gradient of `Crop`.

    data: (N, C, h, w);  like: (N, C, H, W), read for its shape only  ->  out: as `like`.
    """

    inputs = ("data", "like")
    shape_only = ("like",)
    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        offset: tuple[int, ...] = (0, 0)
        center_crop: bool = False

        def __post_init__(self) -> None:
            if len(self.offset) != 2:
                raise OpAttributeError(f"offset must be two numbers, got {self.offset}.")

    @staticmethod
    def infer_shape(a, data, like):
        if not len(data) == len(like) == 4:
            raise ShapeError(f"data and like must be (N, C, H, W), got {data} and {like}.")
        begin = _corner(a, like, data[2:])
        if data[:2] != like[:2] or any(b < 0 or b + n > d for b, n, d in zip(begin, data[2:], like[2:])):
            raise ShapeError(f"data {data} at {begin} does not fit like {like}.")
        return (data, like), (like,)

    @staticmethod
    def forward(xp, a, data, like, *, out):
        out.fill(0)
        xp.copyto(out[_window(a, out.shape, data.shape)], data)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out[_window(a, d_out.shape, d_data.shape)])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.Crop(heads["out"], ins["data"], num_args=2, **given(a))}
