"""Operators that move elements and compute nothing."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..core.dtype import as_dtype
from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import Op
from .blocks import copy


def _axis(axis: int, rank: int, what: str = "data") -> int:
    """`axis` counted from the front. Raises ShapeError when there is no such axis."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is not one of {what} with {rank} axes.")
    return axis % rank


class _Move(Op):
    """Elements go elsewhere; nothing is computed."""

    inputs = ("data",)
    cheap = True

    @staticmethod
    def flops(a, inputs, outputs):
        return 0


class _View(_Move):
    """The same elements in the same order under another shape: in place, nothing is done at all."""

    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        copy(xp, data, out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        copy(xp, d_out, d_data)


class Flatten(_View):
    """Each sample as one row.

    data: (N, ...)  ->  out: (N, K), K the elements of a sample. Costs nothing when done in place.
    """

    aliases = ("flatten",)

    @staticmethod
    def infer_shape(a, data):
        return (data,), ((data[0], prod(data[1:])),)


class Reshape(_View):
    """The same elements under another shape.

    data: (...)  ->  out: `shape`, where in `shape`
      0   keeps the axis of `data` at this place
      -1  is whatever is left over (once)
      -2  keeps all remaining axes
      -3  merges the next two axes into one
      -4  splits the next axis into the two numbers that follow, one of which may be -1
    With `reverse` axes and codes are matched from the right. Without `shape` the old `target_shape` is used: its
    0 is what is left over, and `keep_highest` keeps the first axis. Costs nothing when done in place.
    """

    aliases = ("reshape",)

    @dataclass(frozen=True)
    class Attrs:
        shape: tuple[int, ...] = ()
        reverse: bool = False
        target_shape: tuple[int, ...] = ()
        keep_highest: bool = False

    @staticmethod
    def infer_shape(a, data):
        if a.shape:
            codes, dims = (a.shape[::-1], data[::-1]) if a.reverse else (a.shape, data)
            out, open_axis = _follow(codes, dims, a.shape, data)
            if a.reverse:
                out, open_axis = out[::-1], None if open_axis is None else len(out) - 1 - open_axis
        else:
            if not a.target_shape:
                raise ShapeError("needs the parameter 'shape'.")
            out = list(a.target_shape)
            if a.keep_highest:
                out[0] = data[0]
            gaps = [i for i, d in enumerate(out) if d == 0]
            if len(gaps) > 1:
                raise ShapeError(f"target_shape {a.target_shape} may have one 0.")
            open_axis = gaps[0] if gaps else None
        if open_axis is not None:
            out[open_axis] = 1
            out[open_axis] = prod(data) // prod(out) if prod(out) else 0
        if any(d < 1 for d in out) or prod(out) != prod(data):
            raise ShapeError(
                f"data {data} of {prod(data)} elements does not fit shape {a.shape or a.target_shape}."
            )
        return (data,), (tuple(out),)


def _follow(codes: Shape, dims: Shape, shape: Shape, data: Shape) -> tuple[list[int], int | None]:
    """Output axes and the place of the one to be inferred, from Reshape's codes."""
    out: list[int] = []
    open_axis, source, i = None, 0, 0

    def take() -> int:
        nonlocal source
        if source >= len(dims):
            raise ShapeError(f"shape {shape} asks for more axes than data {data} has.")
        source += 1
        return dims[source - 1]

    while i < len(codes):
        code = codes[i]
        if code == 0:
            out.append(take())
        elif code == -1:
            if open_axis is not None:
                raise ShapeError(f"shape {shape} may have one -1.")
            open_axis = len(out)
            out.append(1)
            source += 1
        elif code == -2:
            out += dims[source:]
            source = len(dims)
        elif code == -3:
            out.append(take() * take())
        elif code == -4:
            if i + 2 >= len(codes):
                raise ShapeError(f"shape {shape}: two numbers must follow a -4.")
            whole, first, second = take(), codes[i + 1], codes[i + 2]
            if first == -1 and second > 0:
                first = whole // second
            elif second == -1 and first > 0:
                second = whole // first
            if first < 1 or second < 1 or first * second != whole:
                raise ShapeError(
                    f"shape {shape}: -4 cannot split {whole} into {codes[i + 1]}, {codes[i + 2]}."
                )
            out += [first, second]
            i += 2
        elif code > 0:
            out.append(code)
            source += 1
        else:
            raise ShapeError(f"shape {shape}: the code {code} has no meaning; codes are 0, -1, -2, -3, -4.")
        i += 1
    return out, open_axis


class expand_dims(_View):
    """An axis of length 1 put in at place `axis`; -1 is the end.

    data: (...)  ->  out: one axis more. Costs nothing when done in place.
    """

    @dataclass(frozen=True)
    class Attrs:
        axis: int

    @staticmethod
    def infer_shape(a, data):
        at = _axis(a.axis, len(data) + 1, "the result")
        return (data,), ((*data[:at], 1, *data[at:]),)


class squeeze(_View):
    """Axes of length 1 left out: those in `axis`, or all.

    data: (...)  ->  out: fewer axes; (1,) if none is left. Costs nothing when done in place.
    """

    @dataclass(frozen=True)
    class Attrs:
        axis: tuple[int, ...] | None = None

    @staticmethod
    def infer_shape(a, data):
        if a.axis is None:
            gone = {i for i, d in enumerate(data) if d == 1}
        else:
            gone = {_axis(i, len(data)) for i in a.axis}
            if any(data[i] != 1 for i in gone):
                raise ShapeError(f"axis {a.axis} of data {data} must have length 1 to be squeezed.")
        return (data,), (tuple(d for i, d in enumerate(data) if i not in gone) or (1,),)


class transpose(_Move):
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


class SwapAxis(_Move):
    """Axes `dim1` and `dim2` exchanged. data: (...)  ->  out: (...). A copy."""

    aliases = ("swapaxes",)

    @dataclass(frozen=True)
    class Attrs:
        dim1: int = 0
        dim2: int = 0

    @staticmethod
    def infer_shape(a, data):
        i, j = _axis(a.dim1, len(data)), _axis(a.dim2, len(data))
        out = list(data)
        out[i], out[j] = out[j], out[i]
        return (data,), (tuple(out),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data.swapaxes(a.dim1, a.dim2))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out.swapaxes(a.dim1, a.dim2))


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


class slice(_Move):
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
        if 0 in out:
            raise ShapeError(f"data {data} from {a.begin} to {a.end} is empty.")
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


class slice_axis(_Move):
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
        axis = _axis(a.axis, len(data))
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


class SliceChannel(_Move):
    """`data` cut along `axis` into `num_outputs` equal parts; `squeeze_axis` drops the axis if they are 1 long.

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
        axis = _axis(a.axis, len(data))
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
        axis = _axis(a.dim, len(first), "arg0")
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
        at = _axis(a.axis, len(first) + 1, "the result")
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


class tile(_Move):
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


class repeat(_Move):
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
        axis = _axis(a.axis, len(data))
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


class reverse(_Move):
    """Elements in reverse order along the axes `axis`. data: (...)  ->  out: (...), same shape."""

    aliases = ("flip",)

    @dataclass(frozen=True)
    class Attrs:
        axis: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        for i in a.axis:
            _axis(i, len(data))
        return (data,), (data,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, xp.flip(data, a.axis))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, xp.flip(d_out, a.axis))


class Cast(_Move):
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
