"""Cholesky factors of many small matrices and their gradients, as generated code.

Each lane of a vector has a matrix of its own, so all steps are those of one matrix on vectors; a library
would be called for each. A lower triangle is in scratch, column by column, and its columns follow each
other: as soon as one is known, its products are subtracted from those behind it. The gradient goes the same
way back (I. Murray, 2016, "Differentiation of the Cholesky decomposition"), over that of the factor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from .....core.machine_code import native
from ..calls.team import load
from ..codegen.emitter import Function, Module, width
from ..codegen.ir import I64, number, Operand as Int, Value

MOST = 32
"""Most rows: the columns of larger ones leave the nearest cache, and a library is as fast."""
Place = Callable[[Int, Int], Value]


def scratch_nbytes(n: int) -> int:
    """Bytes of a triangle in the scratch of a thread."""
    return 4 * width() * (n * (n + 1) // 2)


@functools.cache
def factor_code(lower: bool) -> native.Code:
    """The code with one function, `factor`, of float32 matrices, their factors, scratch, and a number of 64
    bits that becomes 1 where one is not positive definite, then how many there are, n, and the bytes of a
    triangle, of which each thread has one in scratch.
    """
    module = Module()
    f = module.function("factor")
    source, target, work, failed = (f.pointer(k) for k in range(4))
    count, n, nbytes = (f.integer(k) for k in range(4, 7))
    place = _place(f, f.at(work, f.times(f.thread, nbytes)), n)

    def one_group(first: Int, mask: Value) -> None:
        def both(row: Value, column: Value) -> Value:
            sides = (_gathered(f, source, first, n, i, j, mask) for i, j in ((row, column), (column, row)))
            return f.mul(f.add(*sides), f.const(0.5))

        _fill(f, place, n, both)
        _factor(f, n, mask, failed, place)

    def element(i: Value, j: Value) -> tuple[Value, Value]:
        return (i, j) if lower else (j, i)

    def written(row: Value, line: Value, lane: Value) -> None:
        def there(index: Value, mask: Value | None) -> None:
            i, j = element(f.every(row), f.binary("add", f.iota, f.every(index)))
            f.store(_lane_of(f, lane, n, i, j, mask), line, index, mask=mask)

        def nothing(index: Value, mask: Value | None) -> None:
            f.store(f.const(0.0), line, index, mask=mask)

        end = f.plus(row, 1) if lower else row
        f.sweep(0, end, there if lower else nothing)
        f.sweep(end, n, nothing if lower else there)

    _groups(f, target, place, count, n, one_group, written)
    f.done()
    return load(module)


@functools.cache
def gradient_code(lower: bool) -> native.Code:
    """The code with one function, `gradient`, of factors, the gradients of these and of the matrices,
    scratch, then as above; each thread has two triangles.
    """
    module = Module()
    f = module.function("gradient")
    factors, heads, target, work = (f.pointer(k) for k in range(4))
    count, n, nbytes = (f.integer(k) for k in range(4, 7))
    own = f.at(work, f.times(f.times(f.thread, nbytes), 2))
    place, known = _place(f, own, n), _place(f, f.at(own, nbytes), n)

    def one_group(first: Int, mask: Value) -> None:
        for array, into in ((factors, known), (heads, place)):

            def read(row: Value, column: Value, array: Value = array) -> Value:
                at = (row, column) if lower else (column, row)
                return _gathered(f, array, first, n, *at, mask)

            _fill(f, into, n, read)
        _back(f, n, mask, place, known)

    def written(row: Value, line: Value, lane: Value) -> None:
        own = f.every(row)

        def symmetric(index: Value, mask: Value | None) -> None:
            along = f.binary("add", f.iota, f.every(index))
            x = _lane_of(f, lane, n, f.most(own, along), f.least(own, along), mask)
            share = f.select(f.is_("eq", own, along), f.const(1.0), f.const(0.5))
            f.store(f.mul(x, share), line, index, mask=mask)

        f.sweep(0, n, symmetric)

    _groups(f, target, place, count, n, one_group, written)
    f.done()
    return load(module)


def _groups(
    f: Function,
    target: Value,
    place: Place,
    count: Value,
    n: Value,
    one_group: Callable[[Int, Value], None],
    written: Callable[[Value, Value, Value], None],
) -> None:
    """All matrices, as many at a time as a vector has lanes; then the rows of each are written."""
    size = f.times(n, n)
    groups = f.over(f.plus(count, f.width - 1), f.width)
    with f.loop(*f.share(groups)) as group:
        first = f.times(group.index, f.width)
        one_group(first, f.tail(first, count))
        with f.loop(0, f.least(f.minus(count, first), f.width)) as one:
            made = f.offset(target, f.times(f.plus(first, one.index), size), 4)
            lane = f.offset(place(0, 0), one.index, 4)
            with f.loop(0, n) as row:
                written(row.index, f.offset(made, f.times(row.index, n), 4), lane)


def _place(f: Function, work: Value, n: Value) -> Place:
    """The address of an element of a lower triangle: the columns before it have n, n - 1, ... rows."""

    def place(i: Int, column: Int) -> Value:
        before = f.binary("lshr", f.times(column, f.plus(column, 1)), 1)
        return f.offset(work, f.plus(f.minus(f.times(column, n), before), i), 4 * f.width)

    return place


def _lane_of(f: Function, lane: Value, n: Value, i: Value, j: Value, mask: Value | None) -> Value:
    """Elements of a triangle, at vectors of rows and columns, of the matrix in one lane."""
    before = f.binary("lshr", f.binary("mul", j, f.binary("add", j, 1)), 1)
    at = f.binary("add", f.binary("sub", f.binary("mul", j, f.every(n)), before), i)
    return f.gather(lane, f.binary("mul", at, f.width), "float32", mask)


def _gathered(f: Function, array: Value, first: Int, n: Value, i: Value, j: Value, mask: Value) -> Value:
    """One element of each matrix of a group."""
    size = f.times(n, n)
    at = f.plus(f.times(first, size), f.plus(f.times(i, n), j))
    return f.gather(f.offset(array, at, 4), f.binary("mul", f.iota, f.every(size)), "float32", mask)


def _fill(f: Function, place: Place, n: Value, read: Callable[[Value, Value], Value]) -> None:
    """Fill a triangle."""
    with f.loop(0, n) as column, f.loop(column.index, n) as row:
        f.store(read(row.index, column.index), place(row.index, column.index), 0)


def _factor(f: Function, n: Value, mask: Value, failed: Value, place: Place) -> None:
    """The factors, where the matrices are."""
    with f.loop(0, n) as column:
        top = place(column.index, column.index)
        pivot = f.select(mask, f.load(top, 0), f.const(1.0))
        wrong = f.binary("xor", f.compare("ogt", pivot, f.const(0.0)), -1)
        with f.when(_any(f, wrong)):
            f.store_at(number(I64, 1), failed, 8)
        root = f.sqrt(pivot)
        f.store(root, top, 0)
        share = f.div(f.const(1.0), root)
        behind = f.plus(column.index, 1)
        here = place(0, column.index)
        with f.loop(behind, n) as row:
            at = _at(f, here, row.index)
            f.store(f.mul(f.load(at, 0), share), at, 0)
        with f.loop(behind, n) as other:
            factor = f.neg(f.load(_at(f, here, other.index), 0))
            there = place(0, other.index)
            with f.loop(other.index, n) as row:
                into = _at(f, there, row.index)
                term = f.load(_at(f, here, row.index), 0)
                f.store(f.fma(factor, term, f.load(into, 0)), into, 0)


def _back(f: Function, n: Value, mask: Value, place: Place, known: Place) -> None:
    """The gradients of the lower triangles, where those of the factors are, which are `known`."""
    with f.loop(0, n) as done:
        column = f.minus(f.minus(n, 1), done.index)
        behind = f.plus(column, 1)
        here, given = place(0, column), known(0, column)
        with f.loop(behind, n) as other:
            factor = f.neg(f.load(_at(f, given, other.index), 0))
            there = place(0, other.index)
            with f.loop(other.index, n, 1, [f.const(0.0)]) as row:
                d = f.load(_at(f, there, row.index), 0)
                into = _at(f, here, row.index)
                f.store(f.fma(d, factor, f.load(into, 0)), into, 0)
                row.again(f.fma(d, f.load(_at(f, given, row.index), 0), row.values[0]))
            into = _at(f, here, other.index)
            f.store(f.sub(f.load(into, 0), row.results[0]), into, 0)
        root = f.select(mask, f.load(_at(f, given, column), 0), f.const(1.0))
        share = f.div(f.const(1.0), root)
        with f.loop(behind, n, 1, [f.const(0.0)]) as row:
            into = _at(f, here, row.index)
            d = f.mul(f.load(into, 0), share)
            f.store(d, into, 0)
            row.again(f.fma(d, f.load(_at(f, given, row.index), 0), row.values[0]))
        top = _at(f, here, column)
        f.store(f.mul(f.sub(f.load(top, 0), row.results[0]), f.mul(share, f.const(0.5))), top, 0)


def _at(f: Function, column: Value, row: Int) -> Value:
    return f.offset(column, row, 4 * f.width)


def _any(f: Function, mask: Value) -> Value:
    """True if one lane of a mask is."""
    return f.call(mask.type.element, f"llvm.vector.reduce.or.{mask.type.short}", mask)
