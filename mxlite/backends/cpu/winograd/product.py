"""The small matrix products between the transforms, out of vector registers.

A: rows of numbers in blocks of one vector, (K / L, rows, L) with L lanes;
B: (K, v L), v vectors a step;
M: (rows, v L).

M = A B: each of up to `most_rows(v)` rows keeps its v sums in registers for all of K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .routine import Program, Routine

UNROLL = 4  # steps of K written out: a block is a multiple of it
MOST = 14  # rows; more need more code, and are no faster


def registers() -> int:
    from ..compiled import width

    return 32 if width() == 16 else 16


def most_rows(v: int) -> int:
    """Rows of v sums that fit in the registers, with v of B and one of A."""
    return min(MOST, (registers() - 1 - v) // v)


def rows_routine(p: Program, v: int) -> str:
    """`(ptr a, ptr b, ptr m, i64 t, i64 blocks, i64 step, i64 next, i64 fresh)`: M of `t` rows.

    `step`: bytes between blocks of A; `next`: bytes from B to what will be B in the next call. M is written if
    `fresh`, else added to.
    """
    name = f"rows{v}"
    p.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for n in range(1, most_rows(v) + 1):
        _tile(p, f"tile{n}x{v}", n, v)
    f = p.routine(name, a="ptr", b="ptr", m="ptr", t="i64", blocks="i64", step="i64", next="i64", fresh="i64")
    nbytes = 4 * f.width
    rest = [("i64", "%blocks"), ("i64", "%step"), ("i64", "%next"), ("i64", "%fresh")]
    _in_tiles(
        f,
        "%t",
        v,
        lambda n, at: f.run(
            f"tile{n}x{v}",
            ("ptr", f.at("%a", f.times(at, nbytes))),
            ("ptr", "%b"),
            ("ptr", f.at("%m", f.times(at, nbytes * v))),
            *rest,
        ),
    )
    f.done()
    return name


def _in_tiles(f: Routine, rows: str, v: int, run: Callable[[int, str], None]) -> None:
    """Cut `rows` into as few tiles as possible, of sizes that differ by one at most; run(size, first row)."""
    most = most_rows(v)
    tiles = f.over(f.plus(rows, most - 1), most)
    small, larger = f.over(rows, tiles), f.rest(rows, tiles)
    with f.loop("0", str(tiles), 1, ["0"], "i64") as loop:
        (done,) = loop.values
        n = f.plus(small, f.emit(f"zext i1 {f.is_('slt', loop.index, larger)} to i64"))
        after = f._label()
        labels = [f._label() for _ in range(most)]
        cases = " ".join(f"i64 {k + 1}, label %{label}" for k, label in enumerate(labels))
        f.do(f"switch i64 {n}, label %{labels[-1]} [ {cases} ]")
        for k, label in enumerate(labels):
            f._begin(label)
            run(k + 1, done)
            f.do(f"br label %{after}")
        f._begin(after)
        loop.again(str(f.plus(done, n)))


def outer_routine(p: Program, v: int) -> str:
    """`(ptr a, ptr b, ptr s, i64 rows, i64 t, i64 a_step, i64 b_step, i64 fresh)`: S (+)= A^T B.

    a: (t, rows), b: (t, v L), s: (rows, v L); `a_step` and `b_step` bytes between the rows of a and b. S is
    written if `fresh`, else added to.
    """
    name = f"outer{v}"
    p.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for n in range(1, most_rows(v) + 1):
        _outer_tile(p, f"outer{n}x{v}", n, v)
    f = p.routine(
        name, a="ptr", b="ptr", s="ptr", rows="i64", t="i64", a_step="i64", b_step="i64", fresh="i64"
    )
    rest = [("i64", f"%{x}") for x in ("t", "a_step", "b_step", "fresh")]
    _in_tiles(
        f,
        "%rows",
        v,
        lambda n, at: f.run(
            f"outer{n}x{v}",
            ("ptr", f.at("%a", f.times(at, 4))),
            ("ptr", "%b"),
            ("ptr", f.at("%s", f.times(at, 4 * f.width * v))),
            *rest,
        ),
    )
    f.done()
    return name


def _outer_tile(p: Program, name: str, n: int, v: int) -> None:
    """n rows times v vectors, summed over t."""
    f = p.routine(name, a="ptr", b="ptr", s="ptr", t="i64", a_step="i64", b_step="i64", fresh="i64")
    line = 4 * f.width
    at = [f.at("%s", line * k) for k in range(n * v)]
    for there in at:  # read, or at least written, when the sum is done
        f.do(f"call void @llvm.prefetch.p0(ptr {there}, i32 1, i32 3, i32 1)")
    with f.loop("0", "%t", 1, [f.const(0.0)] * (n * v)) as loop:
        sums = list(loop.values)
        a = f.at("%a", f.times(loop.index, "%a_step"))
        b = f.at("%b", f.times(loop.index, "%b_step"))
        right = [f.read(f.at(b, line * j)) for j in range(v)]
        for r in range(n):
            left = f.repeated(f.at(a, 4 * r))
            for j in range(v):
                sums[r * v + j] = f.fma(left, right[j], sums[r * v + j])
        loop.again(*sums)
    _sum_up(f, loop.results, at)
    f.done()


def _sum_up(f: Routine, sums: Sequence[str], at: Sequence[str]) -> None:
    """Write the sums if `fresh`, else add them to what is there."""
    fresh = f.is_("ne", "%fresh", 0)
    with f.when(fresh):
        for value, there in zip(sums, at):
            f.write(value, there)
    with f.when(f.emit(f"xor i1 {fresh}, true")):
        for value, there in zip(sums, at):
            f.write(f.add(value, f.read(there)), there)


def _tile(p: Program, name: str, n: int, v: int) -> None:
    """n rows times v vectors, summed over blocks of K. What comes `next` bytes later in B is asked for."""
    f = p.routine(name, a="ptr", b="ptr", m="ptr", blocks="i64", step="i64", next="i64", fresh="i64")
    lanes = f.width
    line = 4 * lanes
    at = [f.at("%m", line * k) for k in range(n * v)]
    for there in at:
        f.do(f"call void @llvm.prefetch.p0(ptr {there}, i32 1, i32 3, i32 1)")
    with f.loop("0", "%blocks", 1, [f.const(0.0)] * (n * v)) as outer:
        a_block = f.at("%a", f.times(outer.index, "%step"))
        b_block = f.at("%b", f.times(outer.index, line * lanes * v))
        with f.loop("0", str(lanes), UNROLL, outer.values) as inner:
            sums = list(inner.values)
            a = f.at(a_block, f.times(inner.index, 4))
            b = f.at(b_block, f.times(inner.index, line * v))
            ahead = f.at(b, "%next")
            for k in range(UNROLL):
                for j in range(v):
                    f.do(f"call void @llvm.prefetch.p0(ptr {f.at(ahead, line * (k * v + j))}, i32 0, i32 2, i32 1)")
                right = [f.read(f.at(b, line * (k * v + j))) for j in range(v)]
                for r in range(n):
                    left = f.repeated(f.at(a, line * r + 4 * k))
                    for j in range(v):
                        sums[r * v + j] = f.fma(left, right[j], sums[r * v + j])
            inner.again(*sums)
        outer.again(*inner.results)
    _sum_up(f, outer.results, at)
    f.done()
