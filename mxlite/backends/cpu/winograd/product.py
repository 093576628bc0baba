"""The small matrix products between the transforms, built from vector registers.

A: rows of numbers in blocks of one vector, (K / L, rows, L) with L lanes;
B: (K, v L), v vectors a step;
M: (rows, v L).

M = A B: each of up to `most_rows(v)` rows keeps its v sums in registers for all of K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from ..compiled import width
from ..compiled.codegen.ir import Value
from ..compiled.codegen.register_tile import Factors, multiplied
from ..compiled.codegen.routine import Program, Routine

UNROLL = 2  # steps of K written out: a block is a multiple of it
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)  # rows of tiles: each is code to be compiled


def registers() -> int:

    return 32 if width() == 16 else 16


def sizes(v: int) -> list[int]:
    """Numbers of rows of v sums that fit in the registers, with v of B and one of A."""
    return [n for n in SIZES if n * v + v + 1 <= registers()]


@cache
def first_tiles(v: int) -> list[int]:
    """For 1, 2, ... rows, the tile to take first: each tile costs its products and a little more.

    From twice the largest tile on, that is the largest.
    """
    allowed = sizes(v)
    costs, first = [0.0], [0]
    for rows in range(1, 2 * allowed[-1]):
        options = [(max(n * v / 2, 4.0) + 0.5 + costs[rows - n], n) for n in allowed if n <= rows]
        cost, n = min(options, key=lambda o: (o[0], -o[1]))
        costs.append(cost)
        first.append(n)
    return first


def rows_routine(p: Program, v: int) -> str:
    """`(ptr a, ptr b, ptr m, i64 t, i64 blocks, i64 step, i64 next, i64 fresh)`: M of `t` rows.

    `step`: bytes between blocks of A; `next`: bytes from B to what will be B in the next call. M is written
    if `fresh`, else added to.
    """
    name = f"winograd_rows{v}x{width()}"
    for n in sizes(v):
        _tile(p, f"tile{n}x{v}", n, v)
    f = p.routine(name, a="ptr", b="ptr", m="ptr", t="i64", blocks="i64", step="i64", next="i64", fresh="i64")
    nbytes = 4 * f.width
    rest = [f.arg("blocks"), f.arg("step"), f.arg("next"), f.arg("fresh")]
    _in_tiles(
        f,
        f.arg("t"),
        v,
        lambda n, at: f.run(
            f"tile{n}x{v}",
            f.at(f.arg("a"), f.times(at, nbytes)),
            f.arg("b"),
            f.at(f.arg("m"), f.times(at, nbytes * v)),
            *rest,
        ),
    )
    f.done()
    return name


def _in_tiles(f: Routine, rows: Value, v: int, run: Callable[[int, Value], None]) -> None:
    """Cut `rows` into tiles; run(size, first row) for each."""
    first, allowed = first_tiles(v), sizes(v)
    with f.cut(rows) as cut:
        left = f.minus(rows, cut.done)
        cases = [(k, n) for k, n in enumerate(first) if k]
        cut.size = f.one_of(left, cases, {n: partial(run, n, cut.done) for n in allowed})


def outer_routine(p: Program, v: int) -> str:
    """`(ptr a, ptr b, ptr s, i64 rows, i64 t, i64 a_step, i64 b_step, i64 fresh)`: S (+)= A^T B.

    a: (t, rows), b: (t, v L), s: (rows, v L); `a_step` and `b_step` bytes between the rows of a and b. S is
    written if `fresh`, else added to.
    """
    name = f"winograd_outer{v}x{width()}"
    for n in sizes(v):
        _outer_tile(p, f"outer{n}x{v}", n, v)
    f = p.routine(
        name, a="ptr", b="ptr", s="ptr", rows="i64", t="i64", a_step="i64", b_step="i64", fresh="i64"
    )
    rest = [f.arg(x) for x in ("t", "a_step", "b_step", "fresh")]
    _in_tiles(
        f,
        f.arg("rows"),
        v,
        lambda n, at: f.run(
            f"outer{n}x{v}",
            f.at(f.arg("a"), f.times(at, 4)),
            f.arg("b"),
            f.at(f.arg("s"), f.times(at, 4 * f.width * v)),
            *rest,
        ),
    )
    f.done()
    return name


def _outer_tile(p: Program, name: str, n: int, v: int) -> None:
    """n rows times v vectors, summed over t."""
    f = p.routine(name, a="ptr", b="ptr", s="ptr", t="i64", a_step="i64", b_step="i64", fresh="i64")
    line = 4 * f.width
    at = [f.at(f.arg("s"), line * k) for k in range(n * v)]
    for there in at:  # prefetched, or at least written, when the sum is done
        f.prefetch(there, writes=True)
    factors = Factors(f.arg("a"), 4, f.arg("a_step"), f.arg("b"), f.arg("b_step"), (None,) * v)
    sums = multiplied(f, [f.const(0.0)] * (n * v), factors, 0, f.arg("t"))
    _sum_up(f, sums, at)
    f.done()


def _sum_up(f: Routine, sums: Sequence[Value], at: Sequence[Value]) -> None:
    """Write the sums if `fresh`, else add them to what is there."""
    fresh = f.is_("ne", f.arg("fresh"), 0)
    with f.when(fresh):
        for value, there in zip(sums, at):
            f.write(value, there)
    with f.when(f.negated(fresh)):
        for value, there in zip(sums, at):
            f.write(f.add(value, f.read(there)), there)


def _tile(p: Program, name: str, n: int, v: int) -> None:
    """n rows times v vectors, summed over blocks of K. B is prefetched `next` bytes ahead."""
    f = p.routine(name, a="ptr", b="ptr", m="ptr", blocks="i64", step="i64", next="i64", fresh="i64")
    lanes = f.width
    line = 4 * lanes
    at = [f.at(f.arg("m"), line * k) for k in range(n * v)]
    for there in at:
        f.prefetch(there, writes=True)
    with f.loop(0, f.arg("blocks"), 1, [f.const(0.0)] * (n * v)) as outer:
        a_block = f.at(f.arg("a"), f.times(outer.index, f.arg("step")))
        b_block = f.at(f.arg("b"), f.times(outer.index, line * lanes * v))
        following: list[Value] = []

        def ahead(i: Value, b: Value, k: int) -> None:
            if k == 0:
                following.append(f.at(b, f.arg("next")))
            for j in range(v):
                f.prefetch(f.at(following[0], line * (k * v + j)), level=2)

        factors = Factors(a_block, line, 4, b_block, line * v, (None,) * v)
        outer.again(*multiplied(f, outer.values, factors, 0, lanes, UNROLL, ahead))
    _sum_up(f, outer.results, at)
    f.done()
