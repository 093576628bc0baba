"""Sequences of different lengths in one array: SequenceMask, SequenceLast, SequenceReverse.

Time is axis 0 and the samples axis 1, or the other way round with `axis` = 1. A length is cut to a whole
number between 0 and the number of steps; MXNet 1.9.1 reads and writes elsewhere in memory beyond these.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..blocks import copy, PIECE


class _Sequence(Op):
    """Base: data with a time axis, and a vector with one length for each sample."""

    abstract = True
    inputs = ("data", "sequence_length")
    inferred = ("sequence_length",)
    flops_per_output = 0
    optional = {"sequence_length": "use_sequence_length"}

    @record
    class Attrs:
        use_sequence_length: bool = False
        axis: int = 0

        def __post_init__(self) -> None:
            _require_axis(self.axis)

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        if len(data) < 2:
            raise ShapeError(f"data must have at least 2 axes, time and samples, got {data}.")
        return (data, (data[1 - a.axis],))[: len(shapes)], (cls._result(a, data),)

    @staticmethod
    def _result(a: Any, data: Shape) -> Shape:
        return data

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        """Types of data and lengths: lengths may be of any type, by default data's."""
        data = dtypes[0]
        return (data, *(d or data for d in dtypes[1:])), (data,)


def _require_axis(axis: int) -> None:
    if axis not in (0, 1):
        raise OpAttributeError(f"axis must be 0 or 1, got {axis}.")


class SequenceMask(_Sequence):
    """Set the elements after the end of each sequence to `value`.

    data: (T, B, ...), or (B, T, ...) with `axis` = 1;  sequence_length: (B,)  ->  out: as data. Without
    `use_sequence_length` it hands its input on.
    """

    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True

    @record
    class Attrs:
        use_sequence_length: bool = False
        value: float = 0.0
        axis: int = 0

        def __post_init__(self) -> None:
            _require_axis(self.axis)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, sequence_length: Any = None) -> Any:
        if sequence_length is None:
            return {"out": data}
        cube, ends = _declared(t, a, data, sequence_length)
        return {"out": t.where("lt", t.index(cube, a.axis), ends, cube, t.constant(a.value))}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, sequence_length: Any = None, *, out: Any) -> None:
        if out is not None:
            _mask(xp, a, data, sequence_length, out, a.value)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, sequence_length: Any, *, d_data: Any) -> None:
        if d_data is not None:
            _mask(xp, a, d_out, sequence_length, d_data, 0)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Any:
        given = (ins["sequence_length"],) if a.use_sequence_length else ()
        return {
            "data": w.SequenceMask(
                heads["out"], *given, use_sequence_length=a.use_sequence_length, axis=a.axis
            )
        }


def _mask(xp: Any, a: Any, data: Any, lengths: Any, out: Any, value: float) -> None:
    copy(xp, data, out)
    if lengths is None:
        return
    first, second, rest = _cube(out.shape)
    cube = out.reshape(first, second, rest)
    wide = min(second, PIECE)
    for j in range(0, second, PIECE):
        for i in range(0, first, step := max(1, PIECE // wide)):
            rows, columns = slice(i, min(i + step, first)), slice(j, min(j + PIECE, second))
            time, samples = (rows, columns) if a.axis == 0 else (columns, rows)
            steps = xp.arange(time.start, time.stop)
            ends = lengths[samples].astype("int64")
            off = steps[:, None] >= ends if a.axis == 0 else steps >= ends[:, None]
            xp.copyto(cube[rows, columns], xp.asarray(value).astype(out.dtype), where=off[:, :, None])


class SequenceLast(_Sequence):
    """The last element of each sequence, ``out[b] = data[sequence_length[b] - 1, b]``; 0 where there is none.

    data: (T, B, ...), or (B, T, ...) with `axis` = 1;  sequence_length: (B,)  ->  out: (B, ...). Without
    `use_sequence_length` all sequences are T long.
    """

    cheap = True

    @staticmethod
    def _result(a: Any, data: Shape) -> Shape:
        return data[1 - a.axis], *data[2:]

    @staticmethod
    def compute(t: Any, a: Any, data: Any, sequence_length: Any = None) -> Any:
        cube, ends = _declared(t, a, data, sequence_length)
        return {"out": t.where("lt", ends, 1.0, 0.0, t.pick(cube, ends - 1.0, a.axis))}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, sequence_length: Any = None, *, out: Any) -> None:
        if out is None:
            return
        steps, samples, rest = data.shape[a.axis], data.shape[1 - a.axis], prod(data.shape[2:])
        target = out.reshape(samples, rest)
        if not steps:
            xp.copyto(target, 0)
            return
        rows = data.reshape(steps * samples, rest)
        for part, at, empty in _last_rows(xp, a, steps, samples, sequence_length):
            xp.take(rows, at, axis=0, out=target[part], mode="clip")
            xp.copyto(target[part], xp.zeros((), target.dtype), where=empty[:, None])

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, sequence_length: Any, *, d_data: Any) -> None:
        if d_data is None:
            return
        xp.copyto(d_data, 0)
        steps, samples, rest = d_data.shape[a.axis], d_data.shape[1 - a.axis], prod(d_data.shape[2:])
        if not steps:
            return
        rows, source = d_data.reshape(-1, rest), d_out.reshape(samples, rest)
        for part, at, empty in _last_rows(xp, a, steps, samples, sequence_length):
            rows[at] = source[part]
            rows[at[empty]] = 0


def _last_rows(xp: Any, a: Any, steps: int, samples: int, lengths: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(samples, rows of their last elements, mask of samples that have none), some samples at a time."""
    for begin in range(0, samples, PIECE):
        part = slice(begin, min(begin + PIECE, samples))
        sample = xp.arange(part.start, part.stop)
        ends = xp.full(len(sample), steps) if lengths is None else lengths[part].astype("int64")
        last = xp.clip(ends, 1, steps) - 1
        yield part, last * samples + sample if a.axis == 0 else sample * steps + last, ends < 1


class SequenceReverse(_Sequence):
    """Reverse each sequence; elements after its end stay.

    data: (T, B, ...), or (B, T, ...) with `axis` = 1 (MXNet: axis 0 only);  sequence_length: (B,)  ->  out:
    as data. Without `use_sequence_length` all sequences are T long.
    """

    @staticmethod
    def compute(t: Any, a: Any, data: Any, sequence_length: Any = None) -> Any:
        cube, ends = _declared(t, a, data, sequence_length)
        step, last = t.index(cube, a.axis), t("min", ends, float(cube.shape[a.axis])) - 1.0
        return {"out": t.pick(cube, t.where("le", step, last, last - step, step), a.axis)}

    @staticmethod
    def compute_gradient(t: Any, a: Any, heads: Any, arrays: Any) -> Any:
        return {"d_data": SequenceReverse.compute(t, a, heads["out"], arrays.get("sequence_length"))["out"]}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, sequence_length: Any = None, *, out: Any) -> None:
        if out is not None:
            _turn(xp, a, data, sequence_length, out)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, sequence_length: Any, *, d_data: Any) -> None:
        if d_data is not None:
            _turn(xp, a, d_out, sequence_length, d_data)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Any:
        given = (ins["sequence_length"],) if a.use_sequence_length else ()
        return {
            "data": w.SequenceReverse(
                heads["out"], *given, use_sequence_length=a.use_sequence_length, axis=a.axis
            )
        }


def _turn(xp: Any, a: Any, data: Any, lengths: Any, out: Any) -> None:
    if lengths is None:
        xp.copyto(out, data[::-1] if a.axis == 0 else data[:, ::-1])
        return
    first, second, rest = _cube(data.shape)
    source, target = data.reshape(-1, rest), out.reshape(-1, rest)
    steps = data.shape[a.axis]
    step = PIECE // 4  # seven index arrays at a time
    for begin in range(0, first * second, step):
        part = slice(begin, min(begin + step, first * second))
        row = xp.arange(part.start, part.stop)
        t, sample = (row // second, row % second) if a.axis == 0 else (row % second, row // second)
        ends = xp.clip(xp.take(lengths, sample).astype("int64"), 0, steps)
        jump = xp.where(t < ends, ends - 1 - 2 * t, 0)
        xp.take(source, row + (jump * second if a.axis == 0 else jump), axis=0, out=target[part], mode="clip")


def _declared(t: Any, a: Any, data: Any, lengths: Any) -> tuple[Any, Any]:
    """Data of three axes, and the whole number of steps of each sample, all where there are no lengths."""
    cube = t.view(data, _cube(data.shape))
    if lengths is None:
        return cube, t.number(float(data.shape[a.axis]))
    return cube, t.trunc(t.view(lengths, (1, *lengths.shape, 1) if a.axis == 0 else (*lengths.shape, 1, 1)))


def _cube(shape: Shape) -> tuple[int, int, int]:
    """Lengths of the first two axes, and of all others together."""
    return shape[0], shape[1], prod(shape[2:])
