"""Small constant matrices applied to vectors, with few instructions.

The rows of the points p and -p differ only in the sign of their odd columns, so the even and the odd half of
the sum are computed once for both. Where the pair are columns (the transposed matrices), sums and differences
of the two inputs take their place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial

from ..compiled.codegen.ir import Value
from ..compiled.codegen.routine import Routine
from .algebra import Matrix

Load = Callable[[int, int], Value]
Store = Callable[[int, int, Value], None]


def both_sides(
    f: Routine,
    a: Matrix,
    load: Load,
    store: Store,
    b: Matrix | None = None,
    backwards: bool = False,
    once: bool = False,
) -> None:
    """store(i, j, (a X b^T)[i, j]) for the matrix X of vectors load(r, c); b is `a` unless given.

    A few rows of a X at a time, so that they stay in registers; their operands are loaded anew for the next,
    or `once`, if a load is expensive: then all of a X is computed first.
    `backwards`: the last row and the last column are stored first.
    """
    b = a if b is None else b
    early: dict[tuple[int, ...], list[list[Value]]] = {}
    for c in range(len(b[0])) if once else ():
        column = functools.cache(partial(_column, load, c))
        for rows in groups(a):
            early.setdefault(rows, []).append(dots(f, a, rows, column))
    for rows in groups(a):
        columns = early.get(rows) or [dots(f, a, rows, partial(_column, load, c)) for c in range(len(b[0]))]
        kept = []
        for k, i in enumerate(rows):
            for some in groups(b):
                row = [column[k] for column in columns]
                made = dots(f, b, some, row.__getitem__)
                if backwards:
                    kept += [(i, j, value) for j, value in zip(some, made)]
                else:
                    for j, value in zip(some, made):
                        store(i, j, value)
        for i, j, value in reversed(kept):
            store(i, j, value)


def _column(load: Load, c: int, r: int) -> Value:
    return load(r, c)


def groups(a: Matrix) -> list[tuple[int, ...]]:
    """Rows that are computed together: pairs that share their halves, or all if columns come in pairs."""
    if _column_pairs(a):
        return [tuple(range(len(a)))]
    found: list[tuple[int, ...]] = []
    seen: set[int | None] = set()
    for i, row in enumerate(a):
        if i in seen:
            continue
        partner = next(
            (
                j
                for j in range(i + 1, len(a))
                if any(row[1::2])
                and all(y == (x if k % 2 == 0 else -x) for k, (x, y) in enumerate(zip(row, a[j])))
            ),
            None,
        )
        seen |= {i, partner}
        found.append((i,) if partner is None else (i, partner))
    return found


def dots(f: Routine, a: Matrix, rows: Sequence[int], x: Callable[[int], Value]) -> list[Value]:
    """The products of some rows of `a` (as `groups` has them) with the vector of vectors x(0), x(1), ..."""
    if pairs := _column_pairs(a):
        return _by_columns(f, a, rows, pairs, x)
    if len(rows) == 2:
        row = a[rows[0]]
        even = [(c, x(k)) for k, c in enumerate(row) if c and k % 2 == 0]
        odd = [(c, x(k)) for k, c in enumerate(row) if c and k % 2]
        scale = odd[-1][0]
        e = _sum(f, even)
        o = _sum(f, [(c / scale, v) for c, v in odd])
        if scale == 1:
            return [f.add(e, o), f.sub(e, o)]
        factor = f.const(scale)
        return [f.fma(factor, o, e), f.fma(factor, f.neg(o), e)]
    return [_sum(f, [(c, x(k)) for k, c in enumerate(a[i]) if c]) for i in rows]


def _by_columns(
    f: Routine, a: Matrix, rows: Sequence[int], pairs: Sequence[tuple[int, int]], x: Callable[[int], Value]
) -> list[Value]:
    single = [k for k in range(len(a[0])) if not any(k in p for p in pairs)]
    values = {k: x(k) for k in range(len(a[0]))}
    sums = {p: f.add(values[p[0]], values[p[1]]) for p in pairs}
    differences = {p: f.sub(values[p[0]], values[p[1]]) for p in pairs}
    found = []
    for i in rows:
        terms = [(a[i][k], values[k]) for k in single if a[i][k]]
        for p in pairs:
            c, d = a[i][p[0]], a[i][p[1]]
            if c:
                terms.append((c, sums[p] if c == d else differences[p]))
        found.append(_sum(f, terms))
    return found


def _sum(f: Routine, terms: list[tuple[float, Value]]) -> Value:
    """The sum of c * v, beginning with one whose factor is 1 or -1 if there is one."""
    terms = sorted(terms, key=lambda t: abs(t[0]) != 1)
    (c, total), rest = terms[0], terms[1:]
    if c == -1:
        total = f.neg(total)
    elif c != 1:
        total = f.mul(f.const(c), total)
    for c, v in rest:
        if abs(c) == 1:
            total = f.add(total, v) if c == 1 else f.sub(total, v)
        else:
            total = f.fma(f.const(c), v, total)
    return total


@functools.cache
def _column_pairs(a: Matrix) -> tuple[tuple[int, int], ...]:
    """Columns (j, k) of the points p and -p in a matrix of fewer rows than columns: alike but for the sign of
    odd rows."""
    if len(a) >= len(a[0]):
        return ()
    columns = list(zip(*a))
    found = []
    for j in range(len(columns)):
        for k in range(j + 1, len(columns)):
            same = all(y == (x if i % 2 == 0 else -x) for i, (x, y) in enumerate(zip(columns[j], columns[k])))
            if same and any(columns[j][1::2]):
                found.append((j, k))
    return tuple(found)
