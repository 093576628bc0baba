"""Pooling of arrays with their channels last, as generated code.

One module of code serves all shapes: sizes are arguments, and positions come from tables. For each of
three spatial axes (fewer have lengths of 1 in front) and each position along it a table has three numbers:

    forward, position o of the output:   the inputs [begin, end) of its window, and the offset from an input's
                                         position to its element number in the window
    backward, position i of the input:   the outputs [begin, end) whose windows have it, and i + padding:
                                         its element number in window o is that less o * stride

Forward and backward alike gather: each element that is written is computed from what it reads, in registers,
for `BLOCK` vectors of channels at a time. So backward writes everything once, and threads need no barrier.
Element numbers are kept as float32 numbers, exact up to 2^24.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....core.machine_code import native
from ....graph.ir import Shape
from ....ops.nn.pool_kernels import counts, Windows
from .calls.team import load
from .codegen.emitter import Function, Module
from .codegen.ir import I64, Operand as Int, Value

BLOCK = 4  # vectors of channels that are worked on together
MOST_ELEMENTS = 2**24  # of a window


class Tables(NamedTuple):
    """Addresses of the arrays, and the weight of each output (one over the number of elements that count)."""

    forward: np.ndarray
    backward: np.ndarray
    weights: np.ndarray


class Sizes(NamedTuple):
    """The sizes of a call, with three spatial axes."""

    rows: int
    size: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    channels: int


def is_whole(w: Windows) -> bool:
    """True if there is one window, which covers everything."""
    return w.kernel == w.size and not any(w.pad) and all(o == 1 for o in w.out)


def sizes(w: Windows) -> Sizes:
    """The sizes of a pooling with channels last; if one window covers everything, with one axis."""
    if is_whole(w):
        n = prod(w.size)
        return Sizes(w.rows, (1, 1, n), (1, 1, 1), (1, 1, n), (1, 1, 1), w.channels)
    ones = (1,) * (3 - len(w.size))
    return Sizes(w.rows, ones + w.size, ones + w.out, ones + w.kernel, ones + w.stride, w.channels)


def tables(a: Any, w: Windows) -> Tables:
    """The tables of one call. Weights are 1 unless means are taken."""
    s = sizes(w)
    pads = (0,) * 3 if is_whole(w) else (0,) * (3 - len(w.pad)) + w.pad
    forward, backward = [], []
    for n, o, k, stride, p in zip(s.size, s.out, s.kernel, s.stride, pads):
        at = np.arange(o, dtype=np.int64) * stride - p
        forward.append(np.stack([np.clip(at, 0, n), np.clip(at + k, 0, n), -at], axis=1))
        at = np.arange(n, dtype=np.int64) + p
        begin, end = -((k - 1 - at) // stride), at // stride + 1
        backward.append(np.stack([np.clip(begin, 0, o), np.clip(end, 0, o), at], axis=1))
    weights = [np.ones(o, np.float32) for o in s.out]
    if a.pool_type == "avg":
        each = [[s.kernel[2]]] if is_whole(w) else counts(a, w)
        for i, found in enumerate(each, 3 - len(each)):
            weights[i] /= np.asarray(found, np.float32)
    return Tables(np.concatenate(forward), np.concatenate(backward), np.concatenate(weights))


def has_empty_window(w: Windows, t: Tables) -> bool:
    """True if some window has no element of the data."""
    return bool((t.forward[:, 0] >= t.forward[:, 1]).any())


# -- the code ------------------------------------------------------------------------------------

# Arguments of every function: data (or its gradient), out (or its gradient), index, table, weights, then
# the numbers of `Sizes.arguments`.
_DATA, _OUT, _INDEX, _TABLE, _WEIGHTS, _FIRST = range(6)
_NAMES = (
    "rows", "d", "h", "w", "od", "oh", "ow", "kernel_d", "kernel_h", "kernel_w",
    "stride_d", "stride_h", "stride_w", "c",
)  # fmt: skip


def arguments(s: Sizes) -> list[int]:
    """The number arguments of every function."""
    return [s.rows, *s.size, *s.out, *s.kernel, *s.stride, s.channels]


class PoolForm(NamedTuple):
    """Parameters that the code of a function depends on.

    kind: "max", "sum" or, for elements selected by `index`, "chosen". index: the dtype of `index`, "" without
    it. has_out: True if `out` is written. signed: True if channels whose weight is
    below 0 take their minimum.
    """

    kind: str
    backward: bool
    dtype: str
    index: str = ""  # type: ignore[assignment]  # hides tuple.index
    has_out: bool = True
    signed: bool = False


@functools.cache
def code(form: PoolForm) -> native.Code:
    """The code with one function, `pool`."""
    module = Module()
    f = module.function("pool")
    _PoolWriter(f, form).write()
    f.done()
    return load(module)


Ranges = tuple[tuple[Value, Value, Value], tuple[Value, Value, Value], tuple[Value, Value, Value]]
Place = tuple[Value, Value, Value]
Tap = Callable[[Value, Value, Any, Sequence[Value]], Sequence[Value]]


class _PoolWriter:
    """Writes one function."""

    def __init__(self, f: Function, form: PoolForm) -> None:
        self.f, self.form, self.dtype, self.index = f, form, form.dtype, form.index
        self.data, self.out, self.places = f.pointer(_DATA), f.pointer(_OUT), f.pointer(_INDEX)
        self.table, self.weights = f.pointer(_TABLE), f.pointer(_WEIGHTS)
        self.n = {name: f.integer(_FIRST + i) for i, name in enumerate(_NAMES)}

    def product(self, *values: Value) -> Value:
        return functools.reduce(lambda a, b: self.f.times(a, b), values)

    def entry(self, row: Value) -> tuple[Value, Value, Value]:
        """The three numbers of a row of the table."""
        at = self.f.offset(self.table, row, 24)
        return tuple(  # type: ignore[return-value]
            self.f.load_at(I64, self.f.offset(at, k, 8), 8) for k in range(3)
        )

    def write(self) -> None:
        f, n, backward = self.f, self.n, self.form.backward
        # The element's number, from one place of the inner axis to the next.
        self.step = f.neg(f.number(n["stride_w"])) if backward else f.const(1.0)
        # Written: rows of `lines` times (d, h, w) positions; read: (d, h, w) likewise.
        mine = ("d", "h", "w") if backward else ("od", "oh", "ow")
        theirs = ("od", "oh", "ow") if backward else ("d", "h", "w")
        first_h = n[mine[0]]
        first_w = f.plus(first_h, n[mine[1]])
        lines = self.product(n["rows"], n[mine[0]], n[mine[1]])
        begin, end = f.share(lines)
        with f.loop(begin, end) as line:
            plane = f.over(line.index, n[mine[1]])
            h = f.rest(line.index, n[mine[1]])
            row, d = f.over(plane, n[mine[0]]), f.rest(plane, n[mine[0]])
            in_d, in_h = self.entry(d), self.entry(f.plus(first_h, h))
            start = self.product(row, n[theirs[0]])
            mine_at = self.product(line.index, n[mine[2]])
            with f.loop(0, n[mine[2]]) as position:
                in_w = self.entry(f.plus(first_w, position.index))
                target = self.product(f.plus(mine_at, position.index), n["c"])
                write = self.gradient if backward else self.pooled
                where = (d, h, position.index)

                def block(c: Value, count: int, mask: Value | None) -> None:
                    write((in_d, in_h, in_w), where, start, target, c, count, mask)

                self.channels(block)

    def channels(self, block: Callable[[Value, int, Value | None], None]) -> None:
        """`block(c, count, mask)` for all channels, `count` vectors at a time."""
        f, c = self.f, self.n["c"]
        done: Int = 0
        for count in (BLOCK, 1):
            step = count * f.width
            until = f.binary("and", c, -step)
            with f.loop(done, until, step) as loop:
                block(loop.index, count, None)
            done = until
        with f.loop(done, c, f.width) as loop:  # once or never
            block(loop.index, 1, f.tail(loop.index, c))

    def taps(
        self,
        ranges: Ranges,
        lengths: tuple[Value, Value, Value],
        start: Value,
        carried: Sequence[Value],
        line: Callable[[Value, Value], tuple[Value | None, Tap]],
    ) -> tuple[Value, ...]:
        """Emit a body for each position (d, h, w) of three ranges; returns the final carried values.

        `line(d, h)` is called before those with the same d and h. It returns the first `number` (in all
        lanes; each following one is one step further, see `step`) and the body, called as
        `tap(w, element at that position, number, values)`.
        """
        f = self.f
        (d0, d1, _), (h0, h1, _), (w0, w1, _) = ranges
        with f.loop(d0, d1, 1, carried) as by_d:
            plane = f.plus(start, by_d.index)
            with f.loop(h0, h1, 1, by_d.values) as by_h:
                at = f.plus(self.product(plane, lengths[1]), by_h.index)
                base = self.product(at, lengths[2])
                number, tap = line(by_d.index, by_h.index)
                values = (*by_h.values, *(() if number is None else (number,)))
                with f.loop(w0, w1, 1, values) as by_w:
                    element = self.product(f.plus(base, by_w.index), self.n["c"])
                    if number is None:
                        by_w.again(*tap(by_w.index, element, None, by_w.values))
                    else:
                        *old, here = by_w.values
                        by_w.again(*tap(by_w.index, element, here, old), f.add(here, self.step))
                by_h.again(*by_w.results[: len(carried)])
            by_d.again(*by_h.results)
        return by_d.results

    def lanes(self, at: Value, count: int) -> list[Value]:
        """Elements `at`, `at` + width, ..."""
        return [self.f.plus(at, k * self.f.width) if k else at for k in range(count)]

    # -- forward -------------------------------------------------------------------------------

    def pooled(
        self,
        ranges: Ranges,
        where: Place,
        start: Value,
        target: Value,
        c: Value,
        count: int,
        mask: Value | None,
    ) -> None:
        """One output, of `count` vectors of channels."""
        f, n = self.f, self.n
        kind, numbered = self.form.kind, bool(self.index)
        written = self.lanes(f.plus(target, c), count)
        signs: list[Value] = []
        if self.form.signed:
            weights = [f.load(self.weights, i, mask=mask) for i in self.lanes(c, count)]
            one, minus = f.const(1.0), f.const(-1.0)
            signs = [f.select(f.compare("olt", w, f.const(0.0)), minus, one) for w in weights]
        firsts = [f.const(float("-inf") if kind == "max" else 0.0)] * count
        if kind == "chosen":
            chosen = [f.load(self.places, i, self.index, mask) for i in written]
        elif numbered:
            # If all are -inf, the first element stays: nothing is larger.
            (d, _, _), (h, _, _), (w, _, _) = ranges
            firsts += [f.number(self.element(ranges, d, h, w))] * count

        def line(d: Value, h: Value) -> tuple[Value | None, Tap]:
            return (f.number(self.element(ranges, d, h, ranges[2][0])) if numbered else None), tap

        def tap(w: Value, element: Value, number: Value, values: Sequence[Value]) -> Sequence[Value]:
            places = self.lanes(f.plus(element, c), count)
            x = [f.load(self.data, i, self.dtype, mask) for i in places]
            x = [f.mul(v, s) for v, s in zip(x, signs)] if signs else x
            if kind == "chosen":
                here = [f.compare("oeq", v, number) for v in chosen]
                return [f.select(b, new, v) for b, new, v in zip(here, x, values)]
            if kind == "sum":
                return [f.add(v, new) for v, new in zip(values, x)]
            if not numbered:
                return [f.maximum(new, v) for v, new in zip(values, x)]
            best, place = values[:count], values[count:]
            # Larger, or the first nan, which nothing is larger than.
            better = [f.both(f.compare("ugt", new, v), f.compare("ord", v, v)) for v, new in zip(best, x)]
            return [f.select(b, new, v) for b, new, v in zip(better, x, best)] + [
                f.select(b, number, v) for b, v in zip(better, place)
            ]

        found = self.taps(ranges, (n["d"], n["h"], n["w"]), start, firsts, line)
        if kind == "sum":
            weight = f.mul(self.weight(where[0], where[1]), self.last_weight(where[2]))
            found = tuple(f.mul(v, weight) for v in found)
        if self.form.has_out:
            made = [f.mul(v, s) for v, s in zip(found, signs)] if signs else found
            for v, i in zip(made, written):
                f.store(v, self.out, i, self.dtype, mask)
        if numbered and kind == "max":
            for place, i in zip(found[count:], written):
                f.store(place, self.places, i, self.index, mask)

    def element(self, ranges: Ranges, *at: Value) -> Value:
        """The number of the window's element at an input position."""
        d, h, w = (self.f.plus(i, r[2]) for i, r in zip(at, ranges))
        return self.in_window(d, h, w)

    def in_window(self, d: Value, h: Value, w: Value) -> Value:
        """The number of an element, from its place in the window."""
        line = self.f.plus(self.product(d, self.n["kernel_h"]), h)
        return self.f.plus(self.product(line, self.n["kernel_w"]), w)

    def weight(self, d: Value, h: Value) -> Value:
        """The weight of outputs at (d, h), without the part that depends on w."""
        f = self.f
        by_h = f.load_one(self.weights, f.plus(self.n["od"], h))
        return f.mul(f.load_one(self.weights, d), by_h)

    def last_weight(self, w: Value) -> Value:
        """Part of an output's weight that depends on w."""
        before = self.f.plus(self.n["od"], self.n["oh"])
        return self.f.load_one(self.weights, self.f.plus(before, w))

    # -- backward ------------------------------------------------------------------------------

    def gradient(
        self,
        ranges: Ranges,
        where: Place,
        start: Value,
        target: Value,
        c: Value,
        count: int,
        mask: Value | None,
    ) -> None:
        """The gradient of one input, of `count` vectors of channels."""
        f, n = self.f, self.n

        def line(d: Value, h: Value) -> tuple[Value | None, Tap]:
            if not self.index:
                weight = self.weight(d, h)
                return None, functools.partial(weighted, weight)
            steps = ("stride_d", "stride_h", "stride_w")
            at = (d, h, ranges[2][0])
            inner = [f.minus(r[2], self.product(o, n[s])) for r, o, s in zip(ranges, at, steps)]
            return f.number(self.in_window(*inner)), chosen

        def weighted(
            weight: Value, w: Value, element: Value, number: Value, values: Sequence[Value]
        ) -> Sequence[Value]:
            all_of_it = f.mul(weight, self.last_weight(w))
            places = self.lanes(f.plus(element, c), count)
            return [
                f.fma(f.load(self.out, i, self.dtype, mask), all_of_it, v) for v, i in zip(values, places)
            ]

        def chosen(w: Value, element: Value, number: Value, values: Sequence[Value]) -> Sequence[Value]:
            places = self.lanes(f.plus(element, c), count)
            here = [f.compare("oeq", f.load(self.places, i, self.index, mask), number) for i in places]
            d = [f.load(self.out, i, self.dtype, mask) for i in places]
            return [f.select(b, f.add(v, x), v) for b, v, x in zip(here, values, d)]

        lengths = (n["od"], n["oh"], n["ow"])
        found = self.taps(ranges, lengths, start, [f.const(0.0)] * count, line)
        for v, i in zip(found, self.lanes(f.plus(target, c), count)):
            f.store(v, self.data, i, self.dtype, mask)
