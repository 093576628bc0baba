"""Operators that cut an array along one axis into several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from .cut import part_of
from .reshape import axis_of, Move


class SliceChannel(Move):
    """`data` cut along `axis` into `num_outputs` equal parts; `squeeze_axis` drops the axis, then 1 long.

    data: (...)  ->  output0, output1, ...: (...), all of one shape.
    """

    aliases = ("split",)
    variadic_outputs = "outs"

    @record
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
    def infer_inputs(a, inputs, outputs):
        part = next((s for s in outputs if s is not None and -1 not in s), None)
        if part is None:
            return inputs
        axis = axis_of(a.axis, len(part) + a.squeeze_axis)
        length = 1 if a.squeeze_axis else part[axis]
        return ((*part[:axis], length * a.num_outputs, *part[axis + (not a.squeeze_axis) :]),)

    @staticmethod
    def forward(xp, a, data, *, outs):
        _take_apart(xp, outs, _equal_parts(a, data))

    @staticmethod
    def backward(xp, a, d_outs, *, d_data):
        _put_together(xp, d_outs, _equal_parts(a, d_data))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": _together(w, a, ins["data"], outs, heads)}


def _equal_parts(a: Any, data: Any) -> Sequence[Any]:
    axis = a.axis % data.ndim
    length = data.shape[axis] // a.num_outputs
    return [data[part_of(axis, i * length, (i + 1) * length)] for i in range(a.num_outputs)]


def _take_apart(xp, outs, parts):
    for out, part in zip(outs, parts):
        if out is not None:
            xp.copyto(out.reshape(part.shape), part)


def _put_together(xp, d_outs, parts):
    for d_out, part in zip(d_outs, parts):
        if d_out is None:
            part[...] = 0
        else:
            xp.copyto(part, d_out.reshape(part.shape))


def _together(w, a, data, outs, heads):
    """The gradients of all parts joined, zeros for those that do not arrive."""
    parts = [heads[o] if o in heads else w.zeros_like(e) for o, e in outs.items()]
    if not a.squeeze_axis:
        return w.Concat(*parts, dim=a.axis)
    return w.reshape_like(w.stack(*parts, axis=a.axis), data)


class SplitV2(Move):
    """`data` cut along `axis`: into `sections` equal parts, or before each index in `indices`.

    data: (...)  ->  output0, output1, ...: with `indices` (0, 1, 3), the parts [0, 1), [1, 3) and [3, end);
    indices past the end give parts without elements. `squeeze_axis` drops the axis where all parts are 1
    long. (`split_v2` is the function that users call; it puts the 0 in front.)
    """

    op_name = "_split_v2"
    variadic_outputs = "outs"

    @record
    class Attrs:
        indices: tuple[int, ...]
        axis: int = 1
        squeeze_axis: bool = False
        sections: int = 0

        def __post_init__(self) -> None:
            if self.sections < 0 or (not self.sections and not self.indices):
                raise OpAttributeError(f"needs indices, or sections above 0, got {self.sections}.")

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return a.sections or len(a.indices)

    @staticmethod
    def infer_shape(a, data):
        axis = axis_of(a.axis, len(data))
        if a.sections and data[axis] % a.sections:
            raise ShapeError(f"sections={a.sections} must divide axis {a.axis} of data {data}.")
        places = places_of(a, data[axis])
        if list(places) != sorted(places) or places[0] < 0:
            raise ShapeError(f"indices {a.indices} must be places in axis {a.axis} of data {data}, in order.")
        lengths = [j - i for i, j in pairwise(places)]
        if a.squeeze_axis and set(lengths) != {1}:
            raise ShapeError(
                f"squeeze_axis needs parts of length 1, axis {a.axis} of {data} gives {lengths}."
            )
        front, back = data[:axis], data[axis + 1 :]
        if a.squeeze_axis:
            return (data,), ((*front, *back) or (1,),) * len(lengths)
        return (data,), tuple((*front, n, *back) for n in lengths)

    @staticmethod
    def forward(xp, a, data, *, outs):
        _take_apart(xp, outs, _unequal_parts(a, data))

    @staticmethod
    def backward(xp, a, d_outs, *, d_data):
        places = places_of(a, d_data.shape[a.axis])
        d_data[part_of(a.axis % d_data.ndim, 0, places[0])] = 0  # elements before the first part
        _put_together(xp, d_outs, _unequal_parts(a, d_data))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        joined = _together(w, a, ins["data"], outs, heads)
        if not a.sections and a.indices[0]:
            # Elements before the first index belong to no part.
            zeros = w.zeros_like(w.slice_axis(ins["data"], axis=a.axis, begin=0, end=a.indices[0]))
            joined = w.Concat(zeros, joined, dim=a.axis)
        return {"data": joined}


def split_parameters(indices_or_sections: int | Sequence[int]) -> dict[str, Any]:
    """The parameters of `_split_v2` for the arguments of `split_v2`: its indices begin with 0."""
    if hasattr(indices_or_sections, "__index__"):
        return {"indices": (), "sections": indices_or_sections}
    if not isinstance(indices_or_sections, (tuple, list)):
        raise OpAttributeError(f"split_v2 needs a number of parts or places, got {indices_or_sections!r}.")
    return {"indices": (0, *indices_or_sections)}


def places_of(a: Any, length: int) -> list[int]:
    """The beginnings of the parts, and the end."""
    if a.sections:
        return [i * (length // a.sections) for i in range(a.sections + 1)]
    return [*(min(i, length) for i in a.indices), length]


def _unequal_parts(a: Any, data: Any) -> Sequence[Any]:
    axis = a.axis % data.ndim
    places = places_of(a, data.shape[axis])
    return [data[part_of(axis, i, j)] for i, j in pairwise(places)]


class Unconcat(Op):
    """`arg0` cut along `dim` into parts as long as the other arrays: the gradient of `Concat`.

    args: (...), then `num_args` - 1 arrays read for their shapes only  ->  output0, ...: as arg1, arg2, ...
    """

    op_name = "_unconcat"
    variadic = "args"
    variadic_outputs = "outs"
    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        num_args: int
        dim: int = 1

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return a.num_args - 1

    @classmethod
    def shape_only_names(cls, a: Any) -> tuple[str, ...]:
        return cls.input_names(a)[1:]

    @staticmethod
    def infer_shape(a, *shapes):
        whole, parts = shapes[0], shapes[1:]
        axis = axis_of(a.dim, len(whole), "arg0")
        same = all(len(s) == len(whole) for s in parts) and all(
            (*s[:axis], *s[axis + 1 :]) == (*whole[:axis], *whole[axis + 1 :]) for s in parts
        )
        if not same or sum(s[axis] for s in parts) != whole[axis]:
            raise ShapeError(f"arg0 {whole} does not fall into {parts} along axis {a.dim}.")
        return shapes, parts

    @staticmethod
    def forward(xp, a, *args, outs):
        axis, begin = a.dim % args[0].ndim, 0
        for out, like in zip(outs, args[1:]):
            end = begin + like.shape[axis]
            if out is not None:
                xp.copyto(out, args[0][part_of(axis, begin, end)])
            begin = end

    @staticmethod
    def backward(xp, a, d_outs, *, d_args, shapes):
        if (whole := d_args[0]) is not None:
            axis, begin = a.dim % whole.ndim, 0
            for d_out, shape in zip(d_outs, shapes[0][1:]):
                end = begin + shape[axis]
                whole[part_of(axis, begin, end)] = 0 if d_out is None else d_out
                begin = end
        for d_arg in d_args[1:]:
            if d_arg is not None:
                d_arg.fill(0)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        parts = [heads[o] if o in heads else w.zeros_like(e) for o, e in outs.items()]
        return {"arg0": w.Concat(*parts, dim=a.dim)}
