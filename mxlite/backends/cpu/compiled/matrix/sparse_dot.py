"""Products of a csr matrix, as generated code.

Rows of the result are divided so that threads have equally many elements of the matrix. A row is summed by
one thread, in the order of its elements, some vectors of columns at a time: so the bits do not depend on the
number of threads. For the transposed product elements are sorted by their columns first, by
counting sort on one thread; or, if the dense matrix is narrow, each thread reads all elements and adds
those of its own columns.
"""

from __future__ import annotations

import functools

from .....core.machine_code import native
from ..calls.team import load
from ..codegen.doubles import Doubles
from ..codegen.emitter import Function, Module
from ..codegen.ir import DOUBLE, I8, I64, number, Operand as Int, type_of, Value

BLOCK = 4  # vectors of columns that are summed together


@functools.cache
def sums(dtype: str) -> native.Code:
    """The code with one function, `sums`, for "float32" or "float64": its arguments are data, lines, ends,
    rhs, out, M and K.
    """
    module = Module()
    f = module.function("sums")
    _Sums(f, dtype).write()
    f.done()
    return load(module)


def _entry(f: Function, array: Value, index: Int) -> Value:
    return f.load_at(I64, f.offset(array, index, 8), 8)


class _Sums:
    """Writes the function."""

    def __init__(self, f: Function, dtype: str) -> None:
        self.f, self.wide = f, Doubles(f) if dtype == "float64" else None
        self.nbytes = 8 if self.wide else 4
        self.data, self.lines, self.ends, self.rhs, self.out = (f.pointer(k) for k in range(5))
        self.rows, self.columns = f.integer(5), f.integer(6)

    def write(self) -> None:
        f = self.f
        first = self.row_of(f.thread)
        last = self.row_of(f.plus(f.thread, 1))
        with f.loop(first, last) as row:
            begin, end = (_entry(f, self.ends, k) for k in (row.index, f.plus(row.index, 1)))
            target = f.times(row.index, self.columns)
            done: Int = 0
            for count in (BLOCK, 1):
                step = count * f.width
                left = f.binary("sub", self.columns, done)
                until = f.binary("add", done, f.binary("and", left, -step))
                with f.loop(done, until, step) as column:
                    self.block(begin, end, target, column.index, count, None)
                done = until
            with f.loop(done, self.columns, f.width) as column:  # once or never
                mask = f.tail(column.index, self.columns)
                self.block(begin, end, target, column.index, 1, mask)

    def row_of(self, thread: Value) -> Value:
        """The first row of a thread: a row counts as much as an element of the matrix."""
        f = self.f
        base = _entry(f, self.ends, 0)
        all_of = f.plus(f.minus(_entry(f, self.ends, self.rows), base), self.rows)
        mine = f.binary("sdiv", f.times(all_of, thread), f.threads)
        with f.loop(0, 64, 1, [0, self.rows]) as search:
            low, high = search.values
            middle = f.binary("lshr", f.plus(low, high), 1)
            there = f.minus(_entry(f, self.ends, middle), base)
            before = f.is_("slt", f.plus(there, middle), mine)
            some = f.is_("slt", low, high)
            up, down = f.both(before, some), f.negated(before)
            down = f.both(down, some)
            above = f.plus(middle, 1)
            search.again(
                f.either(up, above, low),
                f.either(down, middle, high),
            )
        return search.results[0]

    def block(
        self, begin: Value, end: Value, target: Value, column: Value, count: int, mask: Value | None
    ) -> None:
        """`count` vectors of columns of one row."""
        f, wide = self.f, self.wide
        zero = wide.zero if wide else f.const(0.0)
        with f.loop(begin, end, 1, [zero] * count) as element:
            line = f.times(_entry(f, self.lines, element.index), self.columns)
            here = f.offset(self.rhs, f.plus(line, column), self.nbytes)
            new = []
            if wide:
                at = f.offset(self.data, element.index, 8)
                factor = f.every(f.load_at(DOUBLE, at, 8))
            else:
                factor = f.load_one(self.data, element.index)
            for k, value in enumerate(element.values):
                place = k * f.width
                if wide:
                    product = wide.op("fmul", factor, wide.load(here, place, mask))
                    new.append(wide.op("fadd", value, product))
                else:
                    new.append(f.add(value, f.mul(factor, f.load(here, place, mask=mask))))
            element.again(*new)
        here = f.offset(self.out, f.plus(target, column), self.nbytes)
        for k, value in enumerate(element.results):
            if wide:
                wide.store(value, here, k * f.width, mask)
            else:
                f.store(value, here, k * f.width, mask=mask)


@functools.cache
def columns_sums(dtype: str) -> native.Code:
    """The code with one function, `sums`: its arguments are data, indices, indptr, rhs, out, touched, then M,
    K and the number of columns.
    """
    module = Module()
    f = module.function("sums")
    _ColumnSums(f, dtype).write()
    f.done()
    return load(module)


class _ColumnSums:
    """Writes the function."""

    def __init__(self, f: Function, dtype: str) -> None:
        self.f, self.wide = f, Doubles(f) if dtype == "float64" else None
        self.nbytes = 8 if self.wide else 4
        self.data, self.indices, self.indptr, self.rhs, self.out, self.touched = (
            f.pointer(k) for k in range(6)
        )
        self.rows, self.width, self.columns = (f.integer(k) for k in range(6, 9))

    def write(self) -> None:
        f = self.f
        low, high = f.share(self.columns)
        begin, end = (f.times(c, self.width) for c in (low, high))
        f.sweep(begin, end, lambda i, mask: self.put(self.zero, self.out, i, mask))
        with f.loop(low, high) as loop:
            f.store_at(number(I8, 0), f.offset(self.touched, loop.index))
        with f.loop(0, self.rows) as row:
            line = f.offset(self.rhs, f.times(row.index, self.width), self.nbytes)
            first, last = (_entry(f, self.indptr, k) for k in (row.index, f.plus(row.index, 1)))
            with f.loop(first, last) as element:
                column = _entry(f, self.indices, element.index)
                mine = f.is_("sge", column, low)
                mine = f.both(mine, f.is_("slt", column, high))
                with f.when(mine):
                    f.store_at(number(I8, 1), f.offset(self.touched, column))
                    target = f.offset(self.out, f.times(column, self.width), self.nbytes)
                    factor = self.one(element.index)
                    f.sweep(0, self.width, lambda i, mask: self.add(factor, line, target, i, mask))

    @property
    def zero(self) -> Value:
        return self.wide.zero if self.wide else self.f.const(0.0)

    def one(self, index: Value) -> Value:
        """An element of the matrix, in all lanes."""
        f = self.f
        if self.wide is None:
            return f.load_one(self.data, index)
        return f.every(f.load_at(DOUBLE, f.offset(self.data, index, 8), 8))

    def add(self, factor: Value, line: Value, target: Value, i: Value, mask: Value | None) -> None:
        if self.wide:
            product = self.wide.op("fmul", factor, self.wide.load(line, i, mask))
            made = self.wide.op("fadd", self.wide.load(target, i, mask), product)
        else:
            product = self.f.mul(factor, self.f.load(line, i, mask=mask))
            made = self.f.add(self.f.load(target, i, mask=mask), product)
        self.put(made, target, i, mask)

    def put(self, value: Value, target: Value, i: Value, mask: Value | None) -> None:
        if self.wide:
            self.wide.store(value, target, i, mask)
        else:
            self.f.store(value, target, i, mask=mask)


@functools.cache
def by_columns(nbytes: int) -> native.Code:
    """The code with one function, `sort`, for elements of 4 or 8 bytes: its arguments are data, indices,
    indptr, values, rows, starts, the number of rows, of columns and of elements. One thread does all.
    """
    module = Module()
    f = module.function("sort")
    data, indices, indptr, values, rows, starts = (f.pointer(k) for k in range(6))
    height, columns, size = (f.integer(k) for k in range(6, 9))
    kind = type_of(f"i{8 * nbytes}")

    def put(value: Int, index: Value) -> None:
        f.store_at(f.value(value), f.offset(starts, index, 8), 8)

    def load_of(index: Value) -> Value:
        return _entry(f, starts, index)

    with f.loop(0, f.plus(columns, 1)) as loop:
        put(0, loop.index)
    # The count of column c two places further, so that sums stand one further, and grow to where c ends.
    last = f.minus(columns, 1)
    with f.loop(0, size) as element:
        column = _entry(f, indices, element.index)
        with f.when(f.is_("slt", column, last)):
            place = f.plus(column, 2)
            put(f.plus(load_of(place), 1), place)
    with f.loop(2, f.plus(columns, 1), 1, [0]) as loop:
        total = f.plus(loop.values[0], load_of(loop.index))
        put(total, loop.index)
        loop.again(total)
    with f.loop(0, height) as row:
        begin, end = (_entry(f, indptr, k) for k in (row.index, f.plus(row.index, 1)))
        with f.loop(begin, end) as element:
            behind = f.plus(_entry(f, indices, element.index), 1)
            place = load_of(behind)
            put(f.plus(place, 1), behind)
            value = f.load_at(kind, f.offset(data, element.index, nbytes), nbytes)
            f.store_at(value, f.offset(values, place, nbytes), nbytes)
            f.store_at(row.index, f.offset(rows, place, 8), 8)
    f.done()
    return load(module)
