"""The small matrix products between the transforms, out of vector registers.

A: rows of numbers in blocks of one vector, (K / L, rows, L) with L lanes;
B: (K, v L), v vectors a step;
M: (rows, v L).

M = A B: each of up to `most_rows(v)` rows keeps its v sums in registers for all of K.
"""

from __future__ import annotations

from .routine import Program

UNROLL = 4  # steps of K written out: a block is a multiple of it
MOST = 14  # rows; more need more code, and are no faster


def registers() -> int:
    from ..compiled import width

    return 32 if width() == 16 else 16


def most_rows(v: int) -> int:
    """Rows of v sums that fit in the registers, with v of B and one of A."""
    return min(MOST, (registers() - 1 - v) // v)


def rows_routine(p: Program, v: int) -> str:
    """`(ptr a, ptr b, ptr m, i64 t, i64 blocks, i64 step)`: M of `t` rows; `step` bytes between blocks of A."""
    name = f"rows{v}"
    most = most_rows(v)
    for n in range(1, most + 1):
        _tile(p, f"tile{n}x{v}", n, v)
    f = p.routine(name, a="ptr", b="ptr", m="ptr", t="i64", blocks="i64", step="i64", next="i64")
    nbytes = 4 * f.width
    # As few tiles as possible, of sizes that differ by one at most.
    tiles = f.over(f.plus("%t", most - 1), most)
    small, larger = f.over("%t", tiles), f.rest("%t", tiles)
    with f.loop("0", str(tiles), 1, ["0"], "i64") as loop:
        (done,) = loop.values
        n = f.plus(small, f.emit(f"zext i1 {f.is_('slt', loop.index, larger)} to i64"))
        a = f.at("%a", f.times(done, nbytes))
        m = f.at("%m", f.times(done, nbytes * v))
        after = f._label()
        labels = [f._label() for _ in range(most)]
        cases = " ".join(f"i64 {k + 1}, label %{label}" for k, label in enumerate(labels))
        f.do(f"switch i64 {n}, label %{labels[-1]} [ {cases} ]")
        for k, label in enumerate(labels):
            f._begin(label)
            f.run(
                f"tile{k + 1}x{v}",
                ("ptr", a),
                ("ptr", "%b"),
                ("ptr", m),
                ("i64", "%blocks"),
                ("i64", "%step"),
                ("i64", "%next"),
            )
            f.do(f"br label %{after}")
        f._begin(after)
        loop.again(f.plus(done, n))
    f.done()
    return name


def _tile(p: Program, name: str, n: int, v: int) -> None:
    """n rows times v vectors, summed over blocks of K. What comes `next` bytes later in B is asked for."""
    f = p.routine(name, a="ptr", b="ptr", m="ptr", blocks="i64", step="i64", next="i64")
    lanes = f.width
    line = 4 * lanes
    zero = f.const(0.0)
    with f.loop("0", "%blocks", 1, [zero] * (n * v)) as outer:
        a_block = f.at("%a", f.times(outer.index, "%step"))
        b_block = f.at("%b", f.times(outer.index, line * lanes * v))
        with f.loop("0", str(lanes), UNROLL, outer.values) as inner:
            sums = list(inner.values)
            a = f.at(a_block, f.times(inner.index, 4))
            b = f.at(b_block, f.times(inner.index, line * v))
            ahead = f.at(b, "%next")
            for k in range(UNROLL):
                for j in range(v):
                    f.do(
                        f"call void @llvm.prefetch.p0(ptr {f.at(ahead, line * (k * v + j))}, i32 0, i32 2, i32 1)"
                    )
                right = [f.read(f.at(b, line * (k * v + j))) for j in range(v)]
                for r in range(n):
                    left = f.repeated(f.at(a, line * r + 4 * k))
                    for j in range(v):
                        sums[r * v + j] = f.fma(left, right[j], sums[r * v + j])
            inner.again(*sums)
        outer.again(*inner.results)
    for r in range(n):
        for j in range(v):
            f.write(outer.results[r * v + j], f.at("%m", line * (r * v + j)))
    f.done()
