"""Dropout as generated code: random numbers are computed and compared in registers.

There is neither mask nor scratch, and data is read and written once.

An element's number in the stream is a sum over the axes: `start`, and a step of its own along each. The
code along the last axis depends on the step there:

    run     1: the numbers of a row are consecutive, a block gives four of them
    one     0: all elements of a row share their number
    lanes   any: a block is computed for each element
    fours   any, and rows have numbers 4 k, 4 k + 1, ... in turn: a block gives one of each of four rows
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from ctypes import c_float, c_uint32
from math import ceil, prod
from typing import Any, Literal, NamedTuple

from .....core.machine_code import native
from ..calls.team import call, load, Run, threads_for
from ..codegen.doubles import Doubles
from ..codegen.emitter import Function, Module, storable, width
from ..codegen.ir import I32, Value
from .philox import Philox

PIECE = 8192  # elements of the last axis that a thread takes at a time

Way = Literal["run", "one", "lanes", "fours"]


class DropoutForm(NamedTuple):
    """Parameters that the code depends on; `made`: the dtype of the result, `outer`: axes before the last."""

    dtype: str
    made: str
    way: Way
    outer: int


class Steps(NamedTuple):
    """Numbers of the stream for all elements: lengths of the axes, and steps along them."""

    lengths: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def way(self) -> Way:
        """Kind of loop along the last axis."""
        if self.steps[-1] in (0, 1):
            return "run" if self.steps[-1] else "one"
        by_four = len(self.steps) > 1 and self.steps[-2] == 1 and self.lengths[-2] % 4 == 0
        rest = (*self.steps[:-2], self.steps[-1])
        return "fours" if by_four and all(s % 4 == 0 for s in rest) else "lanes"


def can_drop(dtype: str) -> bool:
    """True if there is code for arrays of a dtype."""
    return dtype == "float64" or dtype in storable() & {"float32", "float16", "bfloat16"}


def limits(p: float) -> tuple[int, int]:
    """The least number (32 bits) that is kept, and the scale, as the bits of a float32.

    A number is kept where its upper 24 bits, as a fraction, are at least p rounded to float32.
    """
    least = ceil(c_float(p).value * 2**24)
    scale = 1 / (1 - p) if least < 2**24 else 0.0
    return min(least << 8, 2**32 - 1), c_uint32.from_buffer(c_float(scale)).value


def dropped(x: Any, out: Any, at: Steps, rng: Any, p: float, start: int = 0) -> Run:
    """The call that writes x, elements dropped, to `out`: arrays in C order, which may be the same.

    Both have one dtype, or float32 results come from 16 bits. start: the stream's number of the first
    element; a multiple of 4 for "fours".
    """
    way = at.way
    *lengths, last = at.lengths
    steps = list(at.steps)
    if way == "fours":
        lengths[-1] //= 4
        steps[-2] = 4
    rows = prod(lengths)
    pieces, piece = _pieces(rows, last)
    size = prod(at.lengths)
    threads = threads_for(size * (x.itemsize + out.itemsize + 4))
    arrays = (x, out, rng.state)
    args = [*(v.__array_interface__["data"][0] for v in arrays), rng.stream, *limits(p), start]
    args += [rows * pieces, pieces, piece, last, *lengths[1:], *steps]
    form = DropoutForm(x.dtype.name, out.dtype.name, way, len(lengths))
    return call(code(form), "dropout", args, threads, keep=arrays)


def _pieces(rows: int, last: int) -> tuple[int, int]:
    """Number of pieces of a row, and their number of elements."""
    count = max(1, -(-last // PIECE))
    step = 2 * width() * count
    piece = -(-last // step) * 2 * width()
    return -(-last // piece), piece


_FIRST = 11  # of the arguments: lengths of the outer axes but the first, then steps


@functools.cache
def code(form: DropoutForm) -> native.Code:
    """The code with one function, `dropout`; its arguments are those of `dropped`."""
    module = Module()
    f = module.function("dropout")
    _DropoutWriter(f, form).write()
    f.done()
    return load(module)


class _DropoutWriter:
    """Writes the function."""

    def __init__(self, f: Function, form: DropoutForm) -> None:
        self.f, self.form = f, form
        self.data, self.out = f.pointer(0), f.pointer(1)
        self.stream = Philox(f, f.pointer(2), f.integer(3))
        self.least = f.every(f.cast("trunc", f.integer(4), I32))
        self.scale = f.load_one(f.arg("args"), 10)  # the lower half of slot 5
        self.wide = Doubles(f) if form.dtype == "float64" else None
        self.start, self.units, self.pieces, self.piece, self.last = (f.integer(k) for k in range(6, 11))
        above = max(0, form.outer - 1)
        self.lengths = [f.integer(_FIRST + k) for k in range(above)]
        self.steps = [f.integer(_FIRST + above + k) for k in range(form.outer + 1)]

    def write(self) -> None:
        f = self.f
        rows_of = f.times(self.last, 4) if self.form.way == "fours" else self.last
        first, last = f.share(self.units)
        with f.loop(first, last) as unit:
            row = f.over(unit.index, self.pieces)
            begin = f.times(f.rest(unit.index, self.pieces), self.piece)
            end = f.least(f.plus(begin, self.piece), self.last)
            number = self.start
            for place, step in zip(f.split(row, self.lengths), self.steps[:-1]):
                number = f.plus(number, f.times(place, step))
            at = f.times(row, rows_of)
            getattr(self, f"_{self.form.way}")(at, begin, end, number)

    # -- the last axis -----------------------------------------------------------------------------

    def _run(self, at: Value, begin: Value, end: Value, number: Value) -> None:
        def body(bits: Value, i: Value, mask: Value | None) -> None:
            self._drop(bits, self.f.plus(at, i), mask)

        self.stream.sweep(number, begin, end, body)

    def _one(self, at: Value, begin: Value, end: Value, number: Value) -> None:
        keep = self._kept(self.stream.one(number))
        self.f.sweep(begin, end, lambda i, mask: self._scaled(keep, self.f.plus(at, i), mask))

    def _lanes(self, at: Value, begin: Value, end: Value, number: Value) -> None:
        s, step = self.stream, self.steps[-1]

        def body(i: Value, mask: Value | None) -> None:
            first = self.f.plus(number, self.f.times(i, step))
            self._drop(s.at(s.spread(first, step)), self.f.plus(at, i), mask)

        self.f.sweep(begin, end, body)

    def _fours(self, at: Value, begin: Value, end: Value, number: Value) -> None:
        s, step = self.stream, self.f.binary("lshr", self.steps[-1], 2)
        block = self.f.binary("lshr", number, 2)

        def body(i: Value, mask: Value | None) -> None:
            first = self.f.plus(block, self.f.times(i, step))
            here = self.f.plus(at, i)
            for bits in s.words_of(s.spread(first, step)):
                self._drop(bits, here, mask)
                here = self.f.plus(here, self.last)

        self.f.sweep(begin, end, body)

    # -- elements --------------------------------------------------------------------------------

    def _drop(self, bits: Value, at: Value, mask: Value | None) -> None:
        self._scaled(self._kept(bits), at, mask)

    def _kept(self, bits: Value) -> Value:
        """Factor of elements with these numbers."""
        f = self.f
        return f.select(f.is_("uge", bits, self.least), self.scale, f.const(0.0))

    def _scaled(self, keep: Value, at: Value, mask: Value | None) -> None:
        f, wide, form = self.f, self.wide, self.form
        if wide is None:
            f.store(f.mul(f.load(self.data, at, form.dtype, mask), keep), self.out, at, form.made, mask)
        else:
            made = wide.op("fmul", wide.load(self.data, at, mask), wide.widen(keep))
            wide.store(made, self.out, at, mask)


def whole_run(size: int) -> Steps:
    """The steps of an array whose elements have the numbers of their positions."""
    return Steps((size,), (1,))


def steps_of(numbers: tuple[Sequence[int], Sequence[int]]) -> Steps:
    """The steps for lengths and steps of axes, of which there may be none."""
    lengths, steps = numbers
    return Steps(tuple(lengths), tuple(steps)) if lengths else whole_run(1)
