"""Small matrix products from vector registers, as routines that other generated code calls.

    C (rows, columns) = or += A (rows, steps) B (steps, columns)

Columns lie in vectors. A tile of n rows and v vectors of C stays in registers over all steps: each
reads v vectors of B and n single numbers of A, for n v vector multiplications. So only B needs contiguous
rows; A may have any strides, also transposed, and nothing is ever packed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from .emitter import width
from .ir import listed, type_of, Value
from .register_tile import Factors, multiplied
from .routine import Int, Program

MOST_ROWS = 14
_UNROLL = 4


class TileForm(NamedTuple):
    """Layout of the matrices: bytes from one to the next row or step; `columns` numbers in a row of C.

    adds: True if the product is added to the content of C. Columns need not be whole vectors; what follows
    them is neither read nor written. vectors: most of a tile, if not as many as usual: fewer make
    taller tiles, which read less of B at a time, which is good if B comes from a distant cache. rows: their
    number, if it is known.

    b_panel: bytes from one tile's part of B to that of the next tile at its side, if that is not between
    the same steps. places: positions of the vectors in a row of C, in bytes, if not contiguous; the last
    `fresh` of them are not added to. lanes: numbers used in each, if not all.
    """

    a_row: int
    a_step: int
    b_step: int
    c_row: int
    columns: int
    adds: bool = False
    vectors: int = 0
    rows: int = 0
    b_panel: int = 0
    places: tuple[int, ...] = ()
    fresh: int = 0
    lanes: int = 0


def registers() -> int:
    """Vector registers of this CPU."""
    return 32 if width() == 16 else 16


def most_vectors() -> int:
    """Vectors of a tile at most: wider ones leave too few rows."""
    return 4 if registers() == 32 else 2


def multiplier(p: Program, name: str, form: TileForm) -> str:
    """Write the routine `name(ptr a, ptr b, ptr c, i64 rows, i64 steps)`; returns its name."""
    f = p.routine(name, a="ptr", b="ptr", c="ptr", rows="i64", steps="i64")
    lanes = width()
    for number, (start, v) in enumerate(panels(-(-form.columns // lanes), form.vectors or most_vectors())):
        last = min(lanes, form.columns - (start + v - 1) * lanes)
        b = f.at(f.arg("b"), form.b_panel * number if form.b_panel else 4 * lanes * start)
        places = form.places or tuple(range(0, 4 * form.columns, 4 * lanes))
        vectors = tuple(
            Vector(
                places[j],
                _mask(form.lanes or (last if j == start + v - 1 else lanes)),
                form.adds and j < len(places) - form.fresh,
            )
            for j in range(start, start + v)
        )
        most = min(MOST_ROWS, (registers() - 1 - v) // v)  # with v vectors of B and one of A
        done: Int = 0
        if form.rows:
            sizes = heights(form.rows, most)
        else:
            sizes = [(n, 0) for n in (most, *(n for n in (8, 4, 2, 1) if n < most))]
        for n, count in sizes:
            kind = f"{name}.{n}.{start}"
            _tile(p, kind, form, n, vectors)
            until = f.plus(done, n * count or f.times(f.over(f.minus(f.arg("rows"), done), n), n))
            with f.loop(done, until, n) as loop:
                a = f.at(f.arg("a"), f.times(loop.index, form.a_row))
                f.run(kind, a, b, f.at(f.arg("c"), f.times(loop.index, form.c_row)), f.arg("steps"))
            done = until
    f.done()
    return name


def panels(vectors: int, most: int) -> list[tuple[int, int]]:
    """(first vector, number of vectors) of column panels, as few as possible and about equally wide."""
    count = -(-vectors // most)
    bounds = [vectors * i // count for i in range(count + 1)]
    return [(i, j - i) for i, j in pairwise(bounds)]


def heights(rows: int, most: int) -> list[tuple[int, int]]:
    """(rows of a tile, number of such tiles): as few tiles as possible, about equally high."""
    tiles = -(-rows // most)
    small, larger = divmod(rows, tiles)
    return [(n, count) for n, count in ((small + 1, larger), (small, tiles - larger)) if count]


class Vector(NamedTuple):
    """A vector of a row of C: its position, the mask of its lanes, True if the product is added to it."""

    place: int
    mask: Value | None
    adds: bool


def _tile(p: Program, name: str, form: TileForm, n: int, vectors: tuple[Vector, ...]) -> None:
    """n rows of these vectors."""
    f = p.routine(name, a="ptr", b="ptr", c="ptr", steps="i64")
    v = len(vectors)
    sums = [
        f.load(f.at(f.arg("c"), r * form.c_row + x.place), 0, mask=x.mask) if x.adds else f.const(0.0)
        for r in range(n)
        for x in vectors
    ]
    until = f.times(f.over(f.arg("steps"), _UNROLL), _UNROLL)
    a, b, steps = f.arg("a"), f.arg("b"), f.arg("steps")
    factors = Factors(a, form.a_row, form.a_step, b, form.b_step, [x.mask for x in vectors])
    sums = multiplied(f, sums, factors, 0, until, _UNROLL)
    sums = multiplied(f, sums, factors, until, steps)
    for r in range(n):
        for j, x in enumerate(vectors):
            f.store(sums[r * v + j], f.at(f.arg("c"), r * form.c_row + x.place), 0, mask=x.mask)
    f.done()


def first(n: int) -> Value:
    """The mask of the first `n` lanes of a vector."""
    return listed(type_of("i1", width()), (k < n for k in range(width())))


def _mask(n: int) -> Value | None:
    return first(n) if n < width() else None
