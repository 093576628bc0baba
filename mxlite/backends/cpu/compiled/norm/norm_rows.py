"""Batch normalization of arrays with their channels last, as loops over rows of channels.

An array of M * C numbers is read as rows of L = k * C, so that rows are long and made of whole vectors; the
numbers of channel c are in columns c, c + C, ... A row's sums lie in the nearest cache: a vector of them is
read, numbers of several rows are added, and it is written back.

Several rows are read side by side: hardware prefetching works within a page, so that streams in
several pages come faster than one (on Ice Lake half as fast again).

    thread 0   sums over its rows |        | its channels: the sums  |        | second pass over its rows,
    thread 1   sums over its rows |  meet  | of all threads to scale |  meet  | from the last to the first:
      ...                         |        | and the like            |        | those are in the cache still

The rows of the first pass come in parts, of which a thread may have several: the order of a sum
does not depend on the number of threads.

Work, in vectors of S >= L + width float32: scale and shift, or slope and offset, for all threads; for each
part two of sums in float64; then for each thread three vectors of numbers, two of sums and two for the
addend's line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .....ops.norm.norm_act import is_lined
from ..codegen.doubles import Doubles
from ..codegen.emitter import Module, width
from ..codegen.ir import Operand as Int, Value
from .norm_form import (
    Channel,
    inverse_of,
    moved,
    NormForm,
    scale_of,
    shift_of,
    slope_and_offset,
    statistics,
    variance_of,
)

ROW = 4096  # bytes that a row has at least, where there are as many: a page
LONGEST = 4096  # numbers up to which rows are repeated for the sake of whole vectors
CHUNK = 512  # rows whose sums are made in float32
_SHARED, _OF_PART, _OWN = 2, 4, 7  # vectors of S numbers

# Slots of the arguments: addresses, then numbers.
DATA, ADDEND, OUT, GAMMA, BETA, MOVING_MEAN, MOVING_VAR, MEAN, VAR, WORK = range(10)
D_OUT, D_DATA, D_GAMMA, D_BETA, D_ADDEND = range(10, 15)
FACTOR, SHIFT = D_OUT, D_DATA  # forwards
ROWS, LENGTH, CHANNELS, REST, COPIES, STRIDE, PER_COUNT, EPS, MOMENTUM, NEW = range(15, 25)
ADDEND_FACTOR, ADDEND_SHIFT = 25, 26  # addresses
PARTS = 27  # number
COUNT = 28

Rows = list[list[Value]]  # for each row, its begin in each array
Column = Callable[[Value, "Value | None", Rows], None]


def copies(channels: int, numbers: int, itemsize: int) -> int:
    """k of an array of so many numbers."""
    whole = next((k for k in range(1, width() + 1) if k * channels % width() == 0), 1)
    k = whole if whole * channels <= LONGEST else 1
    k *= max(1, -(-ROW // (k * channels * itemsize)))
    return k if k * channels <= numbers else 1


def stride(length: int) -> int:
    """S of rows of L numbers."""
    return -(-(length + width()) // 16) * 16


def work_bytes(length: int, threads: int, parts: int = 0) -> int:
    return 4 * stride(length) * (_SHARED + _OF_PART * parts + _OWN * threads)


class _Passes:
    """Base of forward and backward."""

    def __init__(self, form: NormForm) -> None:
        self.module = Module()
        f = self.f = self.module.function("norm")
        self.form, self.w = form, Doubles(f)
        self.length, self.channels, self.copies = (f.integer(s) for s in (LENGTH, CHANNELS, COPIES))
        self.nbytes = f.times(f.integer(STRIDE), 4)
        work = f.pointer(WORK)
        self.shared = [self._part(work, i) for i in range(_SHARED)]
        self.parts = f.integer(PARTS)
        self.totals_at = self._part(work, _SHARED)
        self.of_part = f.times(self.nbytes, _OF_PART)
        areas = f.offset(self.totals_at, f.times(self.of_part, self.parts))
        area = f.times(self.nbytes, _OWN)
        own = f.offset(areas, f.times(area, f.thread))
        self.own = [self._part(own, i) for i in range(3)]
        self.sums = [self._part(own, i) for i in (3, 4)]
        self.line = [self._part(own, i) for i in (5, 6)] if is_lined(form.addend) else []
        self.first, self.last = self._rows_of(f.thread, f.threads)
        self.per_count, self.eps = self.w.number(PER_COUNT), self.w.number(EPS)

    def _part(self, base: Value, i: int) -> Value:
        return self.f.offset(base, self.f.binary("mul", self.nbytes, i))

    def _rows_of(self, number: Value, count: Value) -> tuple[Value, Value]:
        """Rows [first, last) of part `number` of so many."""
        f = self.f
        first, rows = f.share(f.integer(ROWS), part=(number, count))
        # The incomplete row at the end belongs to the part with the last whole one.
        at_end = f.is_("eq", rows, f.integer(ROWS))
        is_last = f.is_("eq", number, f.minus(count, 1))
        is_there = f.is_("sgt", f.integer(REST), 0)
        more = f.both(is_there, f.both(at_end, is_last))
        return first, f.plus(rows, f.flag(more))

    def _totals(self, part: Value) -> list[Value]:
        """Addresses of both totals of a part."""
        f = self.f
        return [self._part(f.offset(self.totals_at, f.times(self.of_part, part)), i) for i in (0, 2)]

    def rows(
        self,
        arrays: Sequence[Value],
        column: Column,
        first: Value,
        last: Value,
        wide: int,
        back: bool = False,
    ) -> None:
        """column(v, mask, rows) for rows [first, last), `wide` whole ones at a time, from the last if `back`.

        arrays: the begin of each.
        """
        f = self.f
        every = f.integer(ROWS)
        over = f.is_("sgt", last, every)
        whole = f.either(over, every, last)
        # Rows of incomplete vectors go one at a time, because only then masks are used.
        count = f.binary("and", f.minus(whole, first), -wide)
        plain = f.is_("eq", f.binary("and", self.length, f.width - 1), 0)
        until = f.plus(first, f.either(plain, count, 0))
        parts = [(first, until, wide), (until, last, 1)]
        for begin, end, step in reversed(parts) if back else parts:
            with f.loop(begin, end, step) as loop:
                row = loop.index
                if back:
                    mirror = f.plus(begin, end)
                    row = f.minus(f.minus(mirror, row), step)
                starts = [f.times(row, self.length)]
                for _ in range(step - 1):
                    starts.append(f.plus(starts[-1], self.length))
                found = [[f.offset(a, s, self.form.dtype) for a in arrays] for s in starts]
                if step > 1:
                    with f.loop(0, self.length, f.width) as columns:
                        column(columns.index, None, found)
                else:
                    is_rest = f.is_("eq", row, every)
                    stop = f.either(is_rest, f.integer(REST), self.length)
                    f.sweep(0, stop, lambda v, mask, at=found: column(v, mask, at))

    def reduce(
        self,
        arrays: Sequence[Value],
        terms: Callable[[Value, Value | None], Callable[[list[Value]], tuple[Value, Value]]],
        wide: int,
    ) -> None:
        """Add both terms that `terms(v, mask)` computes from a row to the totals of this thread's parts."""
        f, w = self.f, self.w

        def column(v: Value, mask: Value | None, rows: Rows) -> None:
            both = list(map(terms(v, mask), rows))
            for sums, found in zip(self.sums, zip(*both)):
                some = list(found)
                while len(some) > 1:
                    some = [f.add(a, b) for a, b in zip(some[::2], some[1::2])]
                one = some[0] if mask is None else f.select(mask, some[0], f.const(0.0))
                f.store(f.add(f.load(sums, v), one), sums, v)

        with f.loop(*f.share(self.parts)) as part:
            both_totals = self._totals(part.index)
            first, last = self._rows_of(part.index, self.parts)
            with f.loop(0, self.length, f.width) as v:  # there is room behind the last number
                for sums, totals in zip(self.sums, both_totals):
                    f.store(f.const(0.0), sums, v.index)
                    w.store(w.zero, totals, v.index)
            with f.loop(first, last, CHUNK) as chunk:
                most = f.plus(chunk.index, CHUNK)
                until = f.least(most, last)
                self.rows(arrays, column, chunk.index, until, wide)
                with f.loop(0, self.length, f.width) as v:
                    for sums, totals in zip(self.sums, both_totals):
                        some = w.widen(f.load(sums, v.index))
                        w.store(w.op("fadd", w.load(totals, v.index), some), totals, v.index)
                        f.store(f.const(0.0), sums, v.index)

    def channelwise(self, first: Int, last: Value, body: Callable[[Value, Value], None]) -> None:
        """body(c, mask) for every vector of the channels [first, last), `first` a multiple of its width."""
        with self.f.loop(first, last, self.f.width) as c:
            body(c.index, self.f.tail(c.index, self.channels))

    def gathered(self, c: Value) -> tuple[Value, ...]:
        """Both totals of channels [c, c + width): of all parts and columns."""
        f, w = self.f, self.w
        zeros = (w.zero, w.zero)
        with f.loop(0, self.parts, carried=zeros) as part:
            totals = self._totals(part.index)
            with f.loop(0, self.copies, carried=part.values) as copy:
                at = self._column(copy.index, c)
                copy.again(*(w.op("fadd", s, w.load(t, at)) for s, t in zip(copy.values, totals)))
            part.again(*copy.results)
        return part.results

    def spread(self, value: Value, target: Value, c: Value, mask: Value | None) -> None:
        """Write numbers of channels [c, c + width) to all columns of theirs."""
        with self.f.loop(0, self.copies) as copy:
            self.f.store(value, target, self._column(copy.index, c), mask=mask)

    def spread_line(self) -> None:
        """Copy the addend's line, if it has one, to all columns."""
        for slot, target in zip((ADDEND_FACTOR, ADDEND_SHIFT), self.line):
            self.spread_out(self.f.pointer(slot), target)

    def spread_out(self, source: Value, target: Value) -> None:
        """Write numbers of all channels to all columns."""
        self.channelwise(
            0,
            self.channels,
            lambda c, mask: self.spread(self.f.load(source, c, mask=mask), target, c, mask),
        )

    def _column(self, copy: Value, c: Value) -> Value:
        return self.f.plus(self.f.times(copy, self.channels), c)

    def channel(self, v: Value, mean: Value | None, scale: Value | None, shift: Value | None) -> Channel:
        """The channels of column v, out of vectors; None for what is not needed."""
        found: list[Any] = [None if p is None else self.f.load(p, v) for p in (mean, scale, shift)]
        line = [self.f.load(p, v) for p in self.line]
        return Channel(self.f, self.form, found[0], found[1], found[2], line)

    def load(self, row: Sequence[Value], i: int, v: Value, mask: Value | None) -> Value:
        return self.f.load(row[i], v, self.form.dtype, mask)

    def write(self, value: Value, row: Sequence[Value], i: int, v: Value, mask: Value | None) -> None:
        """The result at column v of array i."""
        self.f.store(
            value, row[i], v, self.form.dtype, mask, past_cache=self.form.past_cache and mask is None
        )


@functools.cache
def forward(form: NormForm) -> Module:
    p = _Passes(form)
    f, w = p.f, p.w
    data, addend, out = (f.pointer(s) for s in (DATA, ADDEND, OUT))
    if form.batch:
        shift = p.own[0]
        p.channelwise(
            0, p.channels, lambda c, mask: p.spread(f.load(data, c, form.dtype, mask), shift, c, mask)
        )

        def terms(v: Value, mask: Value | None) -> Callable[[list[Value]], tuple[Value, Value]]:
            first = f.load(shift, v)

            def of(row: list[Value]) -> tuple[Value, Value]:
                x = f.sub(p.load(row, 0, v, mask), first)
                return x, f.mul(x, x)

            return of

        p.reduce([data], terms, wide=8)
        f.meet()
    gamma, beta, moving_mean, moving_var, mean_out, var_out = (
        f.pointer(s) for s in (GAMMA, BETA, MOVING_MEAN, MOVING_VAR, MEAN, VAR)
    )
    line = [f.pointer(s) for s in (FACTOR, SHIFT)] if form.line else []

    def settled(c: Value, mask: Value | None) -> None:
        if form.batch:
            mean, inverse = statistics(f, w.widen(f.load(p.own[0], c)), p.gathered(c), p.per_count, p.eps)
        else:
            mean = f.load(moving_mean, c, mask=mask)
            inverse = inverse_of(f, w.widen(f.load(moving_var, c, mask=mask)), p.eps)
        f.store(mean, mean_out, c, mask=mask)
        f.store(inverse, var_out, c, mask=mask)
        if form.result or form.line:
            scale = scale_of(f, form, inverse, f.load(gamma, c, mask=mask) if form.gamma else None)
            shift = shift_of(f, mean, scale, f.load(beta, c, mask=mask))
            for value, target in zip((scale, shift), p.shared) if form.result else ():
                p.spread(value, target, c, mask)
            for value, target in zip((scale, shift), line) if form.line else ():
                f.store(value, target, c, mask=mask)

    p.channelwise(*f.share(p.channels, f.width), settled)
    if form.result:
        p.spread_line()
        f.meet()

        def applied(v: Value, mask: Value | None, rows: Rows) -> None:
            channel = p.channel(v, None, p.shared[0], p.shared[1])
            for row in rows:
                more = p.load(row, 2, v, mask) if form.addend else None
                y = channel.out(p.load(row, 0, v, mask), more)
                p.write(y, row, 1, v, mask)

        arrays = [data, out, *([addend] if form.addend else [])]
        p.rows(arrays, applied, p.first, p.last, 2 if form.past_cache else 4, back=True)
    f.done()
    return p.module


@functools.cache
def apply(form: NormForm) -> Module:
    """out from data, addend and given lines; no statistics."""
    p = _Passes(form)
    for slot, target in zip((FACTOR, SHIFT), p.own):
        p.spread_out(p.f.pointer(slot), target)
    return _applied(p)


@functools.cache
def again(form: NormForm) -> Module:
    """As `apply`, by the line that `forward` computed from its statistics."""
    p = _Passes(form)
    f = p.f
    gamma, beta, mean_in, var_in = (f.pointer(s) for s in (GAMMA, BETA, MEAN, VAR))

    def settled(c: Value, mask: Value | None) -> None:
        mean, inverse = f.load(mean_in, c, mask=mask), f.load(var_in, c, mask=mask)
        scale = scale_of(f, form, inverse, f.load(gamma, c, mask=mask) if form.gamma else None)
        shift = shift_of(f, mean, scale, f.load(beta, c, mask=mask))
        for value, target in zip((scale, shift), p.own):
            p.spread(value, target, c, mask)

    p.channelwise(0, p.channels, settled)
    return _applied(p)


def _applied(p: _Passes) -> Module:
    """out by the lines in `own`, from data and addend."""
    f, form = p.f, p.form
    data, addend, out = (f.pointer(s) for s in (DATA, ADDEND, OUT))
    p.spread_line()

    def applied(v: Value, mask: Value | None, rows: Rows) -> None:
        channel = p.channel(v, None, p.own[0], p.own[1])
        for row in rows:
            more = p.load(row, 2, v, mask) if form.addend else None
            p.write(channel.out(p.load(row, 0, v, mask), more), row, 1, v, mask)

    arrays = [data, out, *([addend] if form.addend else [])]
    p.rows(arrays, applied, p.first, p.last, 2 if form.past_cache else 4)
    f.done()
    return p.module


@functools.cache
def backward(form: NormForm) -> Module:
    p = _Passes(form)
    f, w = p.f, p.w
    data, out, d_out, d_data, d_addend = (f.pointer(s) for s in (DATA, OUT, D_OUT, D_DATA, D_ADDEND))
    gamma, beta, mean_in, var_in = (f.pointer(s) for s in (GAMMA, BETA, MEAN, VAR))
    by_out, stored = form.relu and form.by_out, form.stored
    by_data = form.relu and not form.by_out
    # Besides data, the array that determines where the rectifier let through.
    other = [out] if by_out else [f.pointer(ADDEND)] if by_data and form.addend else []

    def scaled(c: Value, mask: Value | None) -> tuple[Value, Value, Value]:
        mean, inverse = f.load(mean_in, c, mask=mask), f.load(var_in, c, mask=mask)
        return mean, inverse, scale_of(f, form, inverse, f.load(gamma, c, mask=mask) if form.gamma else None)

    def prepared(c: Value, mask: Value | None) -> None:
        mean, _, scale = scaled(c, mask)
        values = (mean, scale, *([shift_of(f, mean, scale, f.load(beta, c, mask=mask))] if by_data else []))
        for value, target in zip(values, p.own):
            p.spread(value, target, c, mask)

    def channel(v: Value) -> Channel:
        return p.channel(v, p.own[0], p.own[1], p.own[2] if by_data else None)

    p.channelwise(0, p.channels, prepared)
    p.spread_line()
    arrays = [data, d_out, *other, *([d_addend] if stored else [])]

    def terms(v: Value, mask: Value | None) -> Callable[[list[Value]], tuple[Value, Value]]:
        at = channel(v)

        def of(row: list[Value]) -> tuple[Value, Value]:
            x, d = p.load(row, 0, v, mask), p.load(row, 1, v, mask)
            d = at.masked(d, x, p.load(row, 2, v, mask) if other else None)
            if stored:
                f.store(d, row[-1], v, form.dtype, mask)
            return d, f.mul(d, f.sub(x, at.mean))

        return of

    p.reduce(arrays, terms, wide=4)
    f.meet()
    d_gamma, d_beta, moving_mean, moving_var = (
        f.pointer(s) for s in (D_GAMMA, D_BETA, MOVING_MEAN, MOVING_VAR)
    )
    momentum, new = w.number(MOMENTUM), w.number(NEW)

    def settled(c: Value, mask: Value | None) -> None:
        mean, inverse, scale = scaled(c, mask)
        sums = p.gathered(c)
        f.store(w.narrow(sums[0]), d_beta, c, mask=mask)
        by_gamma = w.narrow(w.op("fmul", sums[1], w.widen(inverse))) if form.gamma else f.const(0.0)
        f.store(by_gamma, d_gamma, c, mask=mask)
        if not form.batch:
            return
        if form.result:
            for value, target in zip(slope_and_offset(f, scale, inverse, sums, p.per_count), p.shared):
                p.spread(value, target, c, mask)
        for moving, batch in ((moving_mean, w.widen(mean)), (moving_var, variance_of(f, inverse, p.eps))):
            f.store(moved(f, f.load(moving, c, mask=mask), batch, momentum, new), moving, c, mask=mask)

    p.channelwise(*f.share(p.channels, f.width), settled)
    if form.result:
        if form.batch:
            f.meet()

        def applied(v: Value, mask: Value | None, rows: Rows) -> None:
            at = channel(v)
            slope, offset = (f.load(s, v) for s in p.shared[:2]) if form.batch else (None, None)
            for row in rows:
                x, d = p.load(row, 0, v, mask), p.load(row, 1, v, mask)
                if not stored:
                    d = at.masked(d, x, p.load(row, 3, v, mask) if other else None)
                p.write(at.d_data(d, x, slope, offset), row, 2, v, mask)

        head = d_addend if stored else d_out
        arrays = [data, head, d_data, *(other if not stored else [])]
        p.rows(arrays, applied, p.first, p.last, 2 if form.past_cache else 4, back=True)
    f.done()
    return p.module
