"""Transposition of many matrices at once, (B, R, C) -> (B, C, R), as generated code.

Square blocks go through registers: as many rows are loaded as a vector has numbers, and log2 of that many
rounds of interleaving turn rows into columns. Round k pairs vector i with vector i + half:

    a0 a1 a2 a3      a0 c0 a1 c1      a0 b0 c0 d0
    b0 b1 b2 b3  ->  a2 c2 a3 c3  ->  a1 b1 c1 d1      (a, c interleaved, and b, d)
    c0 c1 c2 c3      b0 d0 b1 d1      a2 b2 c2 d2
    d0 d1 d2 d3      b2 d2 b3 d3      a3 b3 c3 d3

Numbers of 16 bits go in pairs of rows, a pair being one of 32 bits. The rest at an edge is done by a last
block that overlaps the previous one. Matrices with few rows or columns, such as images with three channels,
have code of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from .....core.machine_code import native
from ..calls.team import load
from ..codegen.emitter import Function, Module, width
from ..codegen.ir import listed, type_of, Value, zero

FEW = 4  # rows or columns up to which vectors are assembled one number at a time


class TranspositionForm(NamedTuple):
    """Parameters that the code depends on.

    nbytes: 2 or 4, of an element. rows, columns: their number if it is small, else 0. by_rows: True if the
    outer loop goes along the rows; the inner one then reads contiguous elements.
    """

    nbytes: int
    rows: int = 0
    columns: int = 0
    by_rows: bool = False


def form(nbytes: int, rows: int, columns: int) -> TranspositionForm | None:
    """The form for matrices of this size; None if there is none."""
    w = width()
    if nbytes not in (2, 4) or rows < 2 or columns < 2:
        return None
    tall = w * 4 // nbytes
    few_rows, few_columns = rows <= FEW, columns <= FEW
    if few_rows or few_columns:
        if few_rows and columns >= tall:
            return TranspositionForm(nbytes, rows=rows)
        return TranspositionForm(nbytes, columns=columns) if few_columns and rows >= tall else None
    if rows >= tall and columns >= w:
        return TranspositionForm(nbytes, by_rows=rows > 32 * columns)
    if nbytes == 4 and rows < tall and columns >= w:
        return TranspositionForm(nbytes, rows=rows)
    if nbytes == 4 and columns < w and rows >= tall:
        return TranspositionForm(nbytes, columns=columns, by_rows=True)
    return None


@functools.cache
def code(how: TranspositionForm) -> native.Code:
    """The code with one function, `transpose`: its arguments are source, target, B, R, C."""
    module = Module()
    f = module.function("transpose")
    (_few if 0 < max(how.rows, how.columns) <= FEW else _blocks)(f, how)
    f.done()
    return load(module)


def _blocks(f: Function, how: TranspositionForm) -> None:
    w, nbytes = f.width, how.nbytes
    tall = w * 4 // nbytes  # rows of a block
    source, target = f.pointer(0), f.pointer(1)
    batch, rows, columns = (f.integer(k) for k in (2, 3, 4))

    def count(length: Value, step: int) -> Value:
        return f.over(f.plus(length, step - 1), step)

    outer_n, inner_n = count(rows, tall), count(columns, w)
    if not how.by_rows:
        outer_n, inner_n = inner_n, outer_n
    last_row, last_column = f.minus(rows, tall), f.minus(columns, w)
    begin, end = f.share(f.times(batch, outer_n))
    with f.loop(begin, end) as outer:
        b, i = f.over(outer.index, outer_n), f.rest(outer.index, outer_n)
        with f.loop(0, inner_n) as inner:
            at_row, at_column = (i, inner.index) if how.by_rows else (inner.index, i)
            r = 0 if how.rows else f.least(f.times(at_row, tall), last_row)
            c = 0 if how.columns else f.least(f.times(at_column, w), last_column)
            read = f.plus(f.times(f.plus(f.times(b, rows), r), columns), c)
            written = f.plus(f.times(f.plus(f.times(b, columns), c), rows), r)
            found = transposed(f, _loaded(f, how, source, read, columns))
            for k, x in enumerate(found[: how.columns or w]):
                at = f.offset(target, f.plus(written, f.times(rows, k)), nbytes)
                if how.rows:
                    _store_first(f, x, at, how.rows)
                else:
                    f.store_at(x, at, nbytes)


def _loaded(f: Function, how: TranspositionForm, source: Value, read: Value, columns: Value) -> list[Value]:
    """The rows of a block as vectors of 32 bits, two rows of 16 bits in one."""
    w, nbytes = f.width, how.nbytes
    found: list[Value] = []
    for k in range(w * 4 // nbytes):
        at = f.offset(source, f.plus(read, f.times(columns, k)), nbytes)
        if how.rows and k >= how.rows:
            found.append(zero(f.ints))
        elif nbytes == 2:
            x = f.load_at(type_of("i16", w), at, 2)
            found.append(f.cast("zext", x, f.ints))
        elif how.columns:
            found.append(_load_first(f, at, how.columns))
        else:
            found.append(f.load_at(f.ints, at, 4))
    if nbytes == 4:
        return found
    high = [f.binary("shl", x, 16) for x in found[1::2]]
    return [f.binary("or", a, b) for a, b in zip(found[::2], high)]


def transposed(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of a square block."""
    w = f.width
    low = [k // 2 + w * (k % 2) for k in range(w)]
    high = [k + w // 2 for k in low]
    half = w // 2
    for _ in range(w.bit_length() - 1):
        rows = [f.shuffle(rows[i], rows[i + half], lanes) for i in range(half) for lanes in (low, high)]
    return rows


def _first(f: Function, n: int) -> Value:
    """The mask of the first `n` lanes."""
    return listed(f.bits, (k < n for k in range(f.width)))


def _load_first(f: Function, at: Value, n: int) -> Value:
    return f.masked_load(f.ints, at, 4, _first(f, n))


def _store_first(f: Function, value: Value, at: Value, n: int) -> None:
    f.masked_store(value, at, 4, _first(f, n))


def _few(f: Function, how: TranspositionForm) -> None:
    """Interleave a few rows, or separate a few columns."""
    nbytes, k = how.nbytes, how.rows or how.columns
    lanes = f.width * 4 // nbytes
    kind = type_of(f"i{8 * nbytes}", lanes)
    source, target = f.pointer(0), f.pointer(1)
    batch, length = f.integer(2), f.integer(4 if how.rows else 3)  # length: of the long axis
    steps = f.over(f.plus(length, lanes - 1), lanes)
    last = f.minus(length, lanes)
    begin, end = f.share(f.times(batch, steps))
    with f.loop(begin, end) as loop:
        b, i = f.over(loop.index, steps), f.rest(loop.index, steps)
        p = f.least(f.times(i, lanes), last)
        base = f.times(f.times(b, length), k)
        # Consecutive vectors if numbers alternate; otherwise one of each.
        mixed = [f.plus(f.plus(base, f.times(p, k)), j * lanes) for j in range(k)]
        apart = [f.plus(f.plus(base, p), f.times(length, j)) for j in range(k)]
        reads, writes = (apart, mixed) if how.rows else (mixed, apart)
        x = [f.load_at(kind, f.offset(source, at, nbytes), nbytes) for at in reads]
        for j, at in enumerate(writes):
            if how.rows:
                wanted = [divmod(j * lanes + e, k)[::-1] for e in range(lanes)]
            else:
                wanted = [divmod(e * k + j, lanes) for e in range(lanes)]
            y = _gathered(f, x, wanted)
            f.store_at(y, f.offset(target, at, nbytes), nbytes)


def _gathered(f: Function, vectors: Sequence[Value], wanted: Sequence[tuple[int, int]]) -> Value:
    """The vector of the numbers wanted: (which vector, which lane)."""
    n = len(wanted)
    lanes = [lane if v == 0 else n + lane if v == 1 else -1 for v, lane in wanted]
    found = f.shuffle(vectors[0], vectors[1], lanes)
    for k in range(2, len(vectors)):
        lanes = [n + lane if v == k else e if v < k else -1 for e, (v, lane) in enumerate(wanted)]
        found = f.shuffle(found, vectors[k], lanes)
    return found
