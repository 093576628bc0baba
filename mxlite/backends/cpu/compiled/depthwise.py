"""The weight gradient of depthwise convolutions with channels last, as generated code.

    sums[i, j, c] = sum over samples and positions of d_out[position, c] * data[position * stride + (i, j), c]

A thread has some channels, and goes over the samples in their order: the bits do not depend on the number
of threads. The sums of a row of the window stay in registers while positions of a sample are gone over, for
`BLOCK` vectors of channels at a time. Most positions along a row have the whole row of the window inside the
data; tables say which do, and for the others which columns are inside (`spans`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.machine_code import native
from .calls.team import load
from .codegen.emitter import Function, Module
from .codegen.ir import I64, Operand as Int, Value

BLOCK = 2  # vectors of channels that are worked on together
MOST_COLUMNS = 11  # of a window: two vectors of sums each, and what they are made of, are in registers

_DATA, _OUT, _SUMS, _ROWS, _COLUMNS, _FIRST = range(6)
NAMES = ("n", "h", "w", "oh", "ow", "kernel_h", "stride_h", "stride_w", "dilate_h", "dilate_w", "c")
"""The numbers that follow the addresses of data, d_out, sums (kernel_h, kernel_w, c), and both tables."""

LINE = 4 * 8
"""Bytes of a line of the tables."""


def spans(size: int, out: int, kernel: int, stride: int, dilate: int, pad: int) -> np.ndarray:
    """The tables of one axis, (kernel + 1, 4): for each element of the window the positions [a, b) and [c, d)
    of the output at which it lies inside the data while others do not; at last the positions [a, b) at which
    all do, and the padding.
    """
    offsets = np.arange(kernel, dtype=np.int64) * dilate - pad
    first = np.clip(-(offsets // stride), 0, out)
    last = np.maximum(np.clip(-((offsets - size) // stride), 0, out), first)
    begin = int(first.max())
    end = max(begin, int(last.min()))
    lines = np.stack([first, np.clip(begin, first, last), np.clip(end, first, last), last], axis=1)
    return np.ascontiguousarray(np.concatenate([lines, [[begin, end, pad, 0]]]), dtype=np.int64)


@functools.cache
def code(columns: int, dtype: str) -> native.Code:
    """The code with one function, `d_weight`, for windows of so many columns and arrays of a dtype."""
    module = Module()
    f = module.function("d_weight")
    _DepthwiseWriter(f, columns, dtype).write()
    f.done()
    return load(module)


class _DepthwiseWriter:
    """Writes the function."""

    def __init__(self, f: Function, columns: int, dtype: str) -> None:
        self.f, self.columns, self.dtype = f, columns, dtype
        self.data, self.out, self.sums = f.pointer(_DATA), f.pointer(_OUT), f.pointer(_SUMS)
        self.rows, self.spans = f.pointer(_ROWS), f.pointer(_COLUMNS)
        self.n = {name: f.integer(_FIRST + i) for i, name in enumerate(NAMES)}

    def entry(self, table: Value, line: Int, k: int) -> Value:
        f = self.f
        return f.load_at(I64, f.offset(f.offset(table, line, LINE), k, 8), 8)

    def write(self) -> None:
        f, n = self.f, self.n
        self.whole = self.entry(self.spans, self.columns, 0), self.entry(self.spans, self.columns, 1)
        self.pad_h, self.pad_w = (
            self.entry(self.rows, n["kernel_h"], 2),
            self.entry(self.spans, self.columns, 2),
        )
        self.edges = [[self.entry(self.spans, j, k) for k in range(4)] for j in range(self.columns)]
        self.shift = [
            f.times(f.minus(f.times(n["dilate_w"], j), self.pad_w), n["c"]) for j in range(self.columns)
        ]
        self.step = f.times(n["stride_w"], n["c"])
        begin, end = f.share(n["c"], BLOCK * f.width)
        done: Int = begin
        for count in (BLOCK, 1):
            step = count * f.width
            until = f.plus(done, f.binary("and", f.minus(end, done), -step))
            with f.loop(done, until, step) as loop:
                self.block(loop.index, count, None)
            done = until
        with f.loop(done, end, f.width) as loop:  # once or never
            self.block(loop.index, 1, f.tail(loop.index, n["c"]))

    def block(self, c: Value, count: int, mask: Value | None) -> None:
        """All sums of `count` vectors of channels."""
        f, n = self.f, self.n
        with f.loop(0, f.times(n["kernel_h"], self.columns)) as tap:
            for k in range(count):
                at = f.plus(f.plus(f.times(tap.index, n["c"]), c), k * f.width)
                f.store(f.const(0.0), self.sums, at, mask=mask)
        with f.loop(0, n["n"]) as sample, f.loop(0, n["kernel_h"]) as i:
            self.row(sample.index, i.index, c, count, mask)

    def row(self, sample: Value, i: Value, c: Value, count: int, mask: Value | None) -> None:
        """Add what one sample gives to the sums of row `i` of the window."""
        f, n = self.f, self.n
        places = [
            f.plus(f.plus(f.times(f.plus(f.times(i, self.columns), j), n["c"]), c), k * f.width)
            for j in range(self.columns)
            for k in range(count)
        ]
        sums = [f.load(self.sums, at, mask=mask) for at in places]
        first, last = self.entry(self.rows, i, 0), self.entry(self.rows, i, 3)
        with f.loop(first, last, 1, sums) as line:
            read = f.minus(f.plus(f.times(line.index, n["stride_h"]), f.times(i, n["dilate_h"])), self.pad_h)
            source = f.times(f.times(f.plus(f.times(sample, n["h"]), read), n["w"]), n["c"])
            made = f.times(f.times(f.plus(f.times(sample, n["oh"]), line.index), n["ow"]), n["c"])
            line.again(*self.line(f.plus(source, c), f.plus(made, c), line.values, count, mask))
        for at, value in zip(places, line.results):
            f.store(value, self.sums, at, mask=mask)

    def line(
        self, source: Value, made: Value, sums: Sequence[Value], count: int, mask: Value | None
    ) -> list[Value]:
        """The sums after a line of positions: those at which the whole row is inside, then the others."""
        f = self.f
        with f.loop(*self.whole, 1, sums) as inside:
            inside.again(*self.taps(inside, source, made, range(self.columns), count, mask))
        found = list(inside.results)
        for j, edges in enumerate(self.edges):
            mine = slice(j * count, (j + 1) * count)
            for a, b in (edges[:2], edges[2:]):
                with f.loop(a, b, 1, found[mine]) as border:
                    border.again(*self.taps(border, source, made, [j], count, mask))
                found[mine] = border.results
        return found

    def taps(
        self, loop: Any, source: Value, made: Value, columns: Sequence[int], count: int, mask: Value | None
    ) -> list[Value]:
        """The carried sums of these columns with the products of one position."""
        f = self.f
        out_at = f.plus(made, f.times(loop.index, self.n["c"]))
        at = f.plus(source, f.times(loop.index, self.step))
        d = [f.load(self.out, f.plus(out_at, k * f.width), self.dtype, mask) for k in range(count)]
        found = []
        for place, j in enumerate(columns):
            here = f.plus(at, self.shift[j])
            for k in range(count):
                x = f.load(self.data, f.plus(here, k * f.width), self.dtype, mask)
                found.append(f.fma(d[k], x, loop.values[place * count + k]))
        return found
