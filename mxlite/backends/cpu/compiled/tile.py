"""Small matrix products out of vector registers, as routines that other generated code calls.

    C (rows, columns) = or += A (rows, steps) B (steps, columns)

Columns lie in vectors. A tile of n rows and v vectors of C stays in registers while the steps go by: each
reads v vectors of B and n single numbers of A, for n v multiplications of vectors. So only B needs rows
without gaps; A may lie in any way, also turned over, and nothing is ever packed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ..winograd.routine import Int, Program, Routine
from .emitter import width

MOST_ROWS = 14
_UNROLL = 4


class Form(NamedTuple):
    """How the matrices lie: bytes from one to the next row or step; `columns` numbers in a row of C.

    adds: whether the product is added to what C holds. Columns need not be whole vectors; what lies behind
    them is neither read nor written.
    """

    a_row: int
    a_step: int
    b_step: int
    c_row: int
    columns: int
    adds: bool = False


def registers() -> int:
    """Vector registers of this CPU."""
    return 32 if width() == 16 else 16


def most_vectors() -> int:
    """Vectors of a tile at most: wider ones leave too few rows."""
    return 4 if registers() == 32 else 2


def multiplier(p: Program, name: str, form: Form) -> str:
    """Write the routine `name(ptr a, ptr b, ptr c, i64 rows, i64 steps)`; returns its name."""
    f = p.routine(name, a="ptr", b="ptr", c="ptr", rows="i64", steps="i64")
    lanes = width()
    for start, v in _panels(-(-form.columns // lanes)):
        last = form.columns - (start + v - 1) * lanes
        b, c = (f.at(x, 4 * lanes * start) for x in ("%b", "%c"))
        done: Int = 0
        for n in _heights(v):
            kind = f"{name}.{n}x{v}.{min(last, lanes)}"
            _tile(p, kind, form, n, v, last if last < lanes else None)
            whole = f.times(f.over(f.minus("%rows", done), n), n)
            until = f.plus(done, whole)
            with f.loop(str(done), str(until), n) as loop:
                a = f.at("%a", f.times(loop.index, form.a_row))
                f.run(
                    kind, ("ptr", a), ("ptr", b), ("ptr", f.at(c, f.times(loop.index, form.c_row))),
                    ("i64", "%steps"),
                )  # fmt: skip
            done = until
    f.done()
    return name


def _panels(vectors: int) -> list[tuple[int, int]]:
    """(first vector, how many) of column panels, as few as possible and about equally wide."""
    count = -(-vectors // most_vectors())
    bounds = [vectors * i // count for i in range(count + 1)]
    return [(i, j - i) for i, j in pairwise(bounds)]


def _heights(v: int) -> list[int]:
    """Rows of tiles, from the largest that registers hold, with v of B and one of A, down to 1."""
    most = min(MOST_ROWS, (registers() - 1 - v) // v)
    return [most, *(n for n in (8, 4, 2, 1) if n < most)]


def _tile(p: Program, name: str, form: Form, n: int, v: int, last: int | None) -> None:
    """n rows times v vectors; of the last one only `last` numbers where it is not None."""
    if any(r.name == name for r in p._routines):
        return
    f = p.routine(name, a="ptr", b="ptr", c="ptr", steps="i64")
    line = 4 * f.width
    masks = [None] * (v - 1) + [None if last is None else first(f, last)]

    def row(pointer: str, offset: int) -> list[str]:
        return [f.load(f.at(pointer, offset + line * j), "0", mask=mask) for j, mask in enumerate(masks)]

    sums = [x for r in range(n) for x in (row("%c", r * form.c_row) if form.adds else [f.const(0.0)] * v)]
    until = f.times(f.over("%steps", _UNROLL), _UNROLL)
    start = "0"
    for stop, step in ((str(until), _UNROLL), ("%steps", 1)):
        with f.loop(start, stop, step, sums) as loop:
            values = list(loop.values)
            a = f.at("%a", f.times(loop.index, form.a_step))
            b = f.at("%b", f.times(loop.index, form.b_step))
            for k in range(step):
                right = row(b, k * form.b_step)
                for r in range(n):
                    left = f.repeated(f.at(a, r * form.a_row + k * form.a_step))
                    for j in range(v):
                        values[r * v + j] = f.fma(left, right[j], values[r * v + j])
            loop.again(*values)
        sums, start = list(loop.results), stop
    for r in range(n):
        for j, mask in enumerate(masks):
            f.store(sums[r * v + j], f.at("%c", r * form.c_row + line * j), "0", mask=mask)
    f.done()


def first(f: Routine, n: int) -> str:
    """The mask of the first `n` lanes."""
    return f"<{', '.join(f'i1 {int(k < n)}' for k in range(f.width))}>"
