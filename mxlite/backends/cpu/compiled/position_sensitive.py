"""Pooling over regions, as generated code: means of parts from channels of their own, and maxima.

The positions of parts are in a table, which is computed from the regions when the call runs: (R, 4, P)
numbers, for each region the first row, the row after the last, the first column and the column after the last
of each part along an axis. Forward a thread takes some regions in some channels of the result. Backward it
takes channels of the data, for which it accumulates a plane in scratch of its own, region by region: so
threads need no barrier, and sums are those of one thread.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from ....core.machine_code import native
from .calls.team import load
from .codegen.emitter import Function, Module, width
from .codegen.ir import FLOAT, I32, I64, listed, number, Operand as Int, Value

TOP, BOTTOM, LEFT, RIGHT = range(4)


def plane_floats(height: int, columns: int) -> int:
    """float32 numbers of scratch that a thread has backward: a whole number of vectors."""
    return -(-height * columns // width()) * width()


@functools.cache
def code(dtype: str) -> native.Code:
    """The code with two functions, for data and results of `dtype`.

    forward: arguments are data, out, the image of each region (below 0: none), table, group of each part,
    then R, D, P, G, C, H, W.
    backward: d_data, d_out, the regions ordered by image, the begin of each image's regions (N + 1), table,
    for each group its first part and the part after its last (G, 2), scratch, floats of scratch for a thread,
    then N, D, P, G, C, H, W.
    """
    module = Module()
    for name, kind in (("forward", _PoolingForward), ("backward", _PoolingBackward)):
        f = module.function(name)
        kind(f, dtype).write()
        f.done()
    return load(module)


class _PositionWriter:
    """Base of both directions."""

    table: Value

    def __init__(self, f: Function, dtype: str) -> None:
        self.f, self.dtype = f, dtype

    def entry(self, table: Value, *index: tuple[Int, Int]) -> Value:
        """An i64 of an array: `index` are places, each with the length of its axis."""
        return self.f.load_at(I64, self.f.offset(table, self.at(*index), 8), 8)

    def at(self, *index: tuple[Int, Int]) -> Int:
        """The number of an element in C order."""
        found = index[0][0]
        for place, length in index[1:]:
            found = self.f.plus(self.f.times(found, length), place)
        return found

    def bounds(self, r: Value, i: Value, first: int) -> tuple[Value, Value]:
        """[begin, end) of part i of region r along an axis."""
        found = [self.entry(self.table, (r, 1), (first + k, 4), (i, self.p)) for k in (0, 1)]
        return found[0], found[1]

    def area(self, rows: tuple[Value, Value], columns: tuple[Value, Value]) -> Value:
        """Pixels of a part, at least 1, as a number in all lanes; bounds are in order."""
        size = self.f.times(self.f.minus(rows[1], rows[0]), self.f.minus(columns[1], columns[0]))
        some = self.f.is_("sgt", size, 1)
        return self.f.number(self.f.either(some, size, 1))

    def numbers(self, first: int) -> None:
        """D, P, G, C, H, W are arguments from `first` on."""
        self.d, self.p, self.g, self.c, self.h, self.w = (self.f.integer(first + k) for k in range(6))


class _PoolingForward(_PositionWriter):
    def write(self) -> None:
        f = self.f
        data, out, images, self.table, groups = (f.pointer(k) for k in range(5))
        regions = f.integer(5)
        self.numbers(6)
        first, last = f.share(f.times(regions, self.d))
        with f.loop(first, last) as item:
            r, d = f.over(item.index, self.d), f.rest(item.index, self.d)
            image = self.entry(images, (r, 1))
            there = f.is_("sge", image, 0)
            with f.loop(0, self.p) as down, f.loop(0, self.p) as along:
                i, j = down.index, along.index
                target = self.at((item.index, 1), (i, self.p), (j, self.p))
                f.store_one(f.const(0.0), out, target, self.dtype)
                with f.when(there):
                    rows, columns = self.bounds(r, i, TOP), self.bounds(r, j, LEFT)
                    gi, gj = (self.entry(groups, (k, 1)) for k in (i, j))
                    plane = self.at((image, 1), (self.at((d, 1), (gi, self.g), (gj, self.g)), self.c))
                    with f.loop(*rows, 1, [f.const(0.0)]) as row:
                        line = f.times(self.at((plane, 1), (row.index, self.h)), self.w)
                        with f.loop(*columns, f.width, row.values) as column:
                            mask = f.tail(column.index, columns[1])
                            place = f.plus(line, column.index)
                            column.again(f.add(column.values[0], f.load(data, place, self.dtype, mask)))
                        row.again(*column.results)
                    mean = f.div(f.total(row.results[0]), self.area(rows, columns))
                    f.store_one(mean, out, target, self.dtype)


class _PoolingBackward(_PositionWriter):
    def write(self) -> None:
        f = self.f
        d_data, d_out, order, starts, self.table, parts, scratch = (f.pointer(k) for k in range(7))
        floats, images = f.integer(7), f.integer(8)
        self.numbers(9)
        held = f.offset(scratch, f.times(f.thread, floats), 4)
        squared = f.times(self.g, self.g)
        used = f.times(self.d, squared)
        first, last = f.share(self.c)
        with f.loop(first, last) as channel, f.loop(0, images) as image:
            c, n = channel.index, image.index
            with f.loop(0, floats, f.width) as loop:
                f.store(f.const(0.0), held, loop.index)
            with f.when(f.is_("slt", c, used)):
                d = f.over(c, squared)
                group = f.rest(c, squared)
                gi, gj = f.over(group, self.g), f.rest(group, self.g)
                begin, end = (self.entry(starts, (k, 1)) for k in (n, f.plus(n, 1)))
                with f.loop(begin, end) as region:
                    r = self.entry(order, (region.index, 1))
                    with self.part(parts, gi) as i, self.part(parts, gj) as j:
                        head = self.at((r, 1), (d, self.d), (i, self.p), (j, self.p))
                        self.add(held, r, i, j, f.load_one(d_out, head, self.dtype))
            base = f.times(f.times(self.at((n, 1), (c, self.c)), self.h), self.w)

            def put(at: Value, mask: Value | None, base: Int = base) -> None:
                place = f.plus(base, at)
                f.store(f.load(held, at, mask=mask), d_data, place, self.dtype, mask)

            f.sweep(0, f.times(self.h, self.w), put)

    @contextmanager
    def part(self, parts: Value, group: Value) -> Iterator[Value]:
        """The parts of a group along an axis."""
        low, high = (self.entry(parts, (group, 1), (k, 2)) for k in (0, 1))
        with self.f.loop(low, high) as loop:
            yield loop.index

    def add(self, held: Value, r: Value, i: Value, j: Value, head: Value) -> None:
        """Add a head gradient's share to each pixel of a part."""
        f = self.f
        rows, columns = self.bounds(r, i, TOP), self.bounds(r, j, LEFT)
        share = f.div(head, self.area(rows, columns))
        with f.loop(*rows) as row:
            line = f.times(row.index, self.w)
            with f.loop(*columns, f.width) as column:
                mask = f.tail(column.index, columns[1])
                place = f.plus(line, column.index)
                f.store(f.add(f.load(held, place, mask=mask), share), held, place, mask=mask)


@functools.cache
def maxima(dtype: str, has_out: bool, has_index: bool) -> native.Code:
    """The code with one function, `forward`: its arguments are data, out, index, the image of each region,
    table, then R, C, PH, PW, H, W. A region has 2 * PH + 2 * PW numbers in the table: tops, bottoms, lefts,
    rights.

    Among equal maxima the first, row by row, is taken; NaN is no maximum.
    """
    module = Module()
    f = module.function("forward")
    _Maxima(f, dtype).write(has_out, has_index)
    f.done()
    return load(module)


class _Maxima(_PositionWriter):
    def write(self, has_out: bool, has_index: bool) -> None:
        f = self.f
        data, out, index, images, table = (f.pointer(k) for k in range(5))
        regions, channels, high, wide, height, columns_of = (f.integer(k) for k in range(5, 11))
        both = f.times(f.plus(high, wide), 2)
        first, last = f.share(f.times(regions, channels))
        with f.loop(first, last) as item:
            r, c = f.over(item.index, channels), f.rest(item.index, channels)
            image = self.entry(images, (r, 1))
            there = f.is_("sge", image, 0)
            mine = f.offset(table, f.times(r, both), 8)
            sides = f.offset(mine, f.times(high, 2), 8)
            plane = f.times(self.at((image, 1), (c, channels)), height)
            with f.loop(0, high) as down, f.loop(0, wide) as along:
                rows = self.between(mine, down.index, high)
                columns = self.between(sides, along.index, wide)
                target = self.at((item.index, 1), (down.index, high), (along.index, wide))
                if has_out:
                    f.store_one(f.const(0.0), out, target, self.dtype)
                if has_index:
                    f.store_at(number(I32, -1), f.offset(index, target, 4), 4)
                some = f.both(self.below(rows), self.below(columns))
                with f.when(f.both(there, some)):
                    best, place = self.best(data, plane, rows, columns, columns_of)
                    if has_out:
                        f.store_one(best, out, target, self.dtype)
                    if has_index:
                        f.store_at(place, f.offset(index, target, 4), 4)

    def between(self, table: Value, part: Value, count: Value) -> tuple[Value, Value]:
        return self.entry(table, (part, 1)), self.entry(table, (self.f.plus(part, count), 1))

    def below(self, bounds: tuple[Value, Value]) -> Value:
        return self.f.is_("slt", bounds[0], bounds[1])

    def places(self, at: Value) -> Value:
        """The numbers `at`, `at` + 1, ... as the bits of a float vector."""
        f = self.f
        lanes = listed(f.ints, range(f.width))
        first = f.every(f.cast("trunc", at, I32))
        return f.as_float(f.binary("add", first, lanes))

    def best(
        self, data: Value, plane: Int, rows: tuple[Value, Value], columns: tuple[Value, Value], width: Value
    ) -> tuple[Value, Value]:
        """The maximum of a part, in all lanes, and its position in its plane, an i32."""
        f = self.f
        start = self.places(f.plus(f.times(rows[0], width), columns[0]))
        with f.loop(*rows, 1, [f.const(float("-inf")), start]) as row:
            line = f.times(f.plus(plane, row.index), width)
            number = f.times(row.index, width)
            with f.loop(*columns, f.width, row.values) as column:
                mask = f.tail(column.index, columns[1])
                x = f.load(data, f.plus(line, column.index), self.dtype, mask)
                larger = f.compare("ogt", x, column.values[0])
                larger = f.both(larger, mask)
                here = self.places(f.plus(number, column.index))
                column.again(f.select(larger, x, column.values[0]), f.select(larger, here, column.values[1]))
            row.again(*column.results)
        best, place = row.results
        reduce = f"llvm.vector.reduce.fmax.v{f.width}f32"  # there is no NaN
        most = f.every(f.call(FLOAT, reduce, best, flags="nnan"))
        ints = f.as_int(place)
        equal = f.compare("oeq", best, most)
        chosen = f.either(equal, ints, 2**31 - 1)
        return most, f.call(I32, f"llvm.vector.reduce.smin.{chosen.type.short}", chosen)
