"""Loops that compute an expression for every element of arrays that broadcast.

The shapes of a call are collapsed to the fewest axes: neighbouring ones are merged if no input is
broadcast along one and not along the other. So (N, C, H, W) with (1, C, 1, 1) is (N, C, HW) with (1, C, 1),
and arrays of one shape have one axis. The last axis is swept by vectors; the others, and long pieces of
the last, are *units*, which threads share:

    unit u  ->  row u // pieces of the outer axes, piece u % pieces of the last axis

An input that is broadcast along the last axis is read once a row, and values that depend only on such inputs
are computed once a row. Lengths and strides are arguments: one code serves all shapes of as many axes. All
inputs are read, vector by vector, before an output is written, so an output may overwrite any input of its
size.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from math import prod
from typing import Any

from ....core.machine_code import native
from ....graph.ir import Shape
from ....graph.opdef import DType
from ....te.expression import Expression
from ...elementwise.program import collapsed
from .calls import team
from .codegen.emit import emit
from .codegen.emitter import Function, Module, width
from .codegen.ir import Operand as Int, Value

PIECE = 8192  # elements of the last axis in one unit
MOST_AXES = 4
_SMALL = 8  # steps up to which two vectors are processed at a time: the loop itself costs something, too

Run = team.Run
Kind = tuple[str, bool]
"""Kind of an input: its dtype, and True if it has the last axis (else it is broadcast along it)."""


class Loop:
    """The loop for one expression, shapes and types. `call` connects it to arrays, and is fast."""

    def __init__(
        self,
        expression: Expression,
        constants: Sequence[float],
        views: Sequence[Shape],
        dtypes: Sequence[DType],
        shape: Shape,
        made: Sequence[DType],
        leads: Sequence[int] | None = None,
    ) -> None:
        """`views` and `dtypes` are those of the inputs, `shape` and `made` those of the outputs.

        leads: row strides in elements of every array, inputs and then outputs, if `shape` is (rows, columns)
        of matrices that have more columns.
        """
        if leads is None:
            lengths, strides = collapsed(shape, views)
            steps = (lengths[-1],) * len(made)
        else:
            lengths, strides = shape, tuple((lead, 1) for lead in leads[: len(views)])
            steps = tuple(leads[len(views) :])
        size = prod(shape)
        nbytes = sum(prod(v) * d.itemsize for v, d in zip(views, dtypes)) + size * sum(
            d.itemsize for d in made
        )
        work = nbytes + 2 * size * len(expression.steps)  # a step takes about as long as two bytes
        self._threads = team.threads_for(work)
        rows, last = prod(lengths[:-1]), lengths[-1]
        count, piece = _pieces(rows, last, self._threads)
        args = [rows * count, count, piece, last, *lengths[1:-1]]
        at = []
        for s in strides:
            at.append(len(args))
            args += [0, *s[:-1]]
        for step in steps:
            at.append(len(args))
            args += [0, step]
        args += (bits_of(c) for c in constants)
        self._type = ctypes.c_int64 * len(args)
        self._args, self._at = self._type(*args), at
        kinds = tuple((str(d), s[-1] != 0) for d, s in zip(dtypes, strides))
        self._key = (expression, kinds, tuple(str(d) for d in made), len(lengths) - 1)
        self._make: Callable[[Any], Run] | None = None

    def call(self, *arrays: Any) -> Run:
        """The call for these arrays, inputs and then outputs: in C order, or as `leads` says."""
        if self._make is None:
            self._make = team.caller(_code(*self._key), "elementwise", self._threads)
        slots: Any = self._type.from_buffer_copy(self._args)
        for i, x in zip(self._at, arrays):
            slots[i] = _address(x)
        slots.keep = arrays
        return self._make(slots)


def _address(array: Any) -> int:
    try:  # three times as fast as the other
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # read only, empty, or of a type that buffers do not know
        return int(array.__array_interface__["data"][0])


def _pieces(rows: int, last: int, threads: int) -> tuple[int, int]:
    """Number of pieces of a row, and their number of elements, so that threads have equally many units."""
    count = max(1, -(-last // PIECE))
    if rows * count < 16 * threads and rows * count % threads and last >= threads * width():
        count = -(-count // threads) * threads
    if count == 1:
        return 1, last
    vectors = -(-last // width())
    piece = -(-vectors // count) * width()
    return -(-last // piece), piece


@functools.lru_cache(maxsize=4096)
def _code(
    expression: Expression, kinds: tuple[Kind, ...], outputs: tuple[str, ...], outer: int
) -> native.Code:
    """Machine code for these inputs and outputs, and `outer` axes before the last."""
    module = Module()
    _Loops(module.function("elementwise"), expression, kinds, outputs, outer).write()
    return team.load(module)


class _Loops:
    """The text of one function. Slots: units, pieces in a row, elements in a piece, in a row, lengths of the
    outer axes but the first; for each input its address and outer strides; for each output its address and
    elements from row to row; constants.
    """

    def __init__(
        self, f: Function, e: Expression, kinds: tuple[Kind, ...], outputs: tuple[str, ...], outer: int
    ) -> None:
        self.f, self.e, self.kinds, self.outputs, self.outer = f, e, kinds, outputs, outer
        self.slot = 4 + max(0, outer - 1)
        self.level = self._levels()
        self.values: dict[int, Value] = {}
        self.made: dict[Value, tuple[Value, Value]] = {}

    def _levels(self) -> list[int]:
        """For each value how often it is computed: 0 once, 1 for every row, 2 for every vector."""
        level = [2 if has else 1 for _, has in self.kinds] + [0] * self.e.num_constants
        for name, *operands in self.e.steps:
            level.append(0 if name == "number" else max(level[x] for x in operands))
        return level

    def write(self) -> None:
        f, e, outer = self.f, self.e, self.outer
        units, pieces, piece, row_length = (f.integer(i) for i in range(4))
        lengths = [f.integer(4 + i) for i in range(max(0, outer - 1))]
        inputs = []
        for _ in self.kinds:
            pointer = f.pointer(self.slot)
            inputs.append((pointer, [f.integer(self.slot + 1 + i) for i in range(outer)]))
            self.slot += 1 + outer
        outputs = []
        for _ in self.outputs:
            outputs.append((f.pointer(self.slot), f.integer(self.slot + 1)))
            self.slot += 2
        for k in range(e.num_constants):
            at = f.offset(f.arg("args"), self.slot + k, 8)
            self.values[e.num_inputs + k] = f.load_one(at, 0)
        self.steps(0)
        used = {x for s in e.steps if s[0] != "number" for x in s[1:]} | set(e.outputs)
        first, last = f.share(units)
        with f.loop(first, last) as unit:
            row = f.over(unit.index, pieces) if outer else 0
            done = f.times(row, pieces) if outer else 0
            at = f.binary("mul", f.binary("sub", unit.index, done), piece)
            places = self._places(row, lengths)
            here: list[Value] = []
            for i, ((pointer, strides), (dtype, has)) in enumerate(zip(inputs, self.kinds)):
                for place, stride in zip(places, strides):
                    pointer = f.offset(pointer, f.times(place, stride), dtype)
                here.append(pointer)
                if i in used and not has:
                    self.values[i] = f.load_one(pointer, 0, dtype)
            self.steps(1)
            targets = [
                f.offset(p, f.times(row, lead), d) if outer else p
                for (p, lead), d in zip(outputs, self.outputs)
            ]
            until = f.plus(at, piece)
            until = f.least(until, row_length)

            def body(index: Value, mask: Value | None) -> None:
                for i, (dtype, has) in enumerate(self.kinds):
                    if has and i in used:
                        self.values[i] = f.load(here[i], index, dtype, mask)
                made = dict(self.made)
                self.steps(2)
                self.made = made
                for x, target, dtype in zip(e.outputs, targets, self.outputs):
                    f.store(self.values[x], target, index, dtype, mask)

            f.sweep(at, until, body, unroll=2 if len(e.steps) <= _SMALL else 1)
        f.done()

    def steps(self, level: int) -> None:
        for i, step in enumerate(self.e.steps, self.e.first_step):
            if self.level[i] == level:
                operands = [] if step[0] == "number" else [self.values[x] for x in step[1:]]
                self.values[i] = emit(self.f, step, operands, self.made)

    def _places(self, row: Int, lengths: list[Value]) -> list[Int]:
        """The index along each outer axis of a row."""
        places: list[Int] = []
        for length in reversed(lengths):
            above = self.f.over(row, length)
            whole = self.f.times(above, length)
            places.insert(0, self.f.minus(row, whole))
            row = above
        return [row, *places] if self.outer else []


def bits_of(x: float) -> int:
    """A float32 number as the low half of a slot."""
    try:
        return int.from_bytes(struct.pack("<f", x), "little")
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000
