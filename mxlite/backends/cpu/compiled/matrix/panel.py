"""The inner loops of generated matrix products: a block of A times a panel of B, tile by tile, as a routine
that products of all sizes share.
"""

from __future__ import annotations

from typing import NamedTuple

from ..codegen.emitter import width
from ..codegen.ir import Value
from ..codegen.register_tile import Factors, multiplied
from ..codegen.routine import Int, Program, Routine
from .schedule import MatricesSchedule

_SIZES = (8, 6, 4, 2, 1)
"""Rows of tiles for what is left of a block."""


class Panel(NamedTuple):
    """Parameters that the routine depends on: those of a schedule that concern it, and True if A is
    column-major."""

    turned: bool
    rows: int
    vectors: int
    unroll: int
    depth: int
    packs_a: int
    packs_b: int
    ahead: int
    reach: int

    @classmethod
    def of(cls, turned: bool, s: MatricesSchedule) -> Panel:
        """The part of a schedule."""
        return cls(turned, s.rows, s.vectors, s.unroll, s.depth, s.packs_a, s.packs_b, s.ahead, s.reach)

    @property
    def row_nbytes(self) -> int:
        """Between rows of a block of A: an odd number of cache lines."""
        return 4 * self.depth + 64

    @property
    def tile_nbytes(self) -> int:
        """Between the tiles of a block of A."""
        return 4 * width() * self.depth + 64 if self.turned else self.rows * self.row_nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the panel in a block of B."""
        return 4 * self.vectors * width() * self.depth

    @property
    def strides(self) -> list[str]:
        """The parameters that say how A and B lie, where they are not copied: bytes between rows of A, or
        steps if it is turned, and between steps of B."""
        return ([] if self.packs_a else ["a_line"]) + ([] if self.packs_b else ["b_step"])

    def tile_of(self, f: Routine, a: Value, i: Int, a_line: Int) -> Value:
        """The address of A from row i of the block on."""
        if not self.packs_a:
            return f.at(a, f.times(i, 4 if self.turned else a_line))
        if not self.turned:
            return f.at(a, f.times(i, self.row_nbytes))
        inside = f.rest(i, self.rows)
        return f.at(a, f.plus(f.times(f.over(i, self.rows), self.tile_nbytes), f.times(inside, 4)))


def panel_routine(p: Program, panel: Panel) -> str:
    """`(a, b, begin, begin_row, c, c_row, rows, steps, left, near, size, far, ahead, *strides)`: all tiles of
    a block of A times a panel of B.

    Sums begin with what lies at `begin` and are written to `c`, `left` columns at most.
    """
    numbers = "_".join(str(x) for x in panel[1:])
    name = f"matrices_{'steps' if panel.turned else 'rows'}{width()}_{numbers}"
    sizes = [panel.rows, *(n for n in _SIZES if n < panel.rows)]
    for n in sizes:
        _tile(p, f"{name}_{n}", n, panel)
    f = p.routine(
        name, a="ptr", b="ptr", begin="ptr", begin_row="i64", c="ptr", c_row="i64", rows="i64", steps="i64",
        left="i64", near="ptr", size="i64", far="ptr", ahead="i64", **dict.fromkeys(panel.strides, "i64"),
    )  # fmt: skip
    strides = [f.arg(x) for x in panel.strides]
    whole = f.times(f.over(f.arg("rows"), panel.rows), panel.rows)
    done: Int = 0
    for n in sizes:
        is_first = n == panel.rows
        until = whole if is_first else f.plus(done, f.times(f.over(f.minus(f.arg("rows"), done), n), n))
        with f.loop(done, until, n) as loop:
            i = loop.index
            a = panel.tile_of(f, f.arg("a"), i, 0 if panel.packs_a else f.arg("a_line"))
            away = f.plus(
                f.arg("ahead"), f.times(f.over(i, panel.rows), f.times(f.arg("steps"), panel.ahead))
            )
            is_near = f.is_("slt", away, f.arg("size"))
            near, far = f.at(f.arg("near"), away), f.at(f.arg("far"), f.minus(away, f.arg("size")))
            f.run(
                f"{name}_{n}", a, f.arg('b'), f.at(f.arg('begin'), f.times(i, f.arg('begin_row'))),
                f.arg('begin_row'), f.at(f.arg('c'), f.times(i, f.arg('c_row'))), f.arg('c_row'),
                f.arg('steps'), f.arg('left'),
                f.either(is_near, near, far), *strides,
            )  # fmt: skip
        done = until
    f.done()
    return name


def _tile(p: Program, name: str, n: int, panel: Panel) -> None:
    """n rows of one panel."""
    f: Routine = p.routine(
        name, a="ptr", b="ptr", begin="ptr", begin_row="i64", c="ptr", c_row="i64", steps="i64", left="i64",
        ahead="ptr", **dict.fromkeys(panel.strides, "i64"),
    )  # fmt: skip
    lanes, vectors, unroll = width(), panel.vectors, panel.unroll
    row: Int
    step: Int
    if panel.packs_a:
        row, step = (4, 4 * lanes) if panel.turned else (panel.row_nbytes, 4)
    else:
        row, step = (4, f.arg("a_line")) if panel.turned else (f.arg("a_line"), 4)
    b_step: Int = 4 * vectors * lanes if panel.packs_b else f.arg("b_step")
    masks = [f.tail(j * lanes, f.arg("left")) for j in range(vectors)]
    at = [f.at(f.arg("c"), f.times(r, f.arg("c_row"))) for r in range(n)]
    for there in at:  # prefetched for the end of the sums
        for j in range(vectors):
            f.prefetch(f.at(there, 4 * lanes * j), writes=True)
    sums = [f.const(0.0)] * (n * vectors)
    until = f.binary("and", f.arg("steps"), -unroll)

    def ahead(i: Value, b: Value, k: int) -> None:
        for line in range(0, 0 if k else panel.ahead * unroll, 64):
            f.prefetch(f.at(f.arg("ahead"), f.plus(f.times(i, panel.ahead), line)), level=2)
        for line in range(0, 4 * vectors * lanes if panel.reach else 0, 64):
            f.prefetch(f.at(b, f.plus(f.times(k + panel.reach, b_step), line)))

    read = (None,) * vectors if panel.packs_b else masks  # a packed panel is filled up
    factors = Factors(f.arg("a"), row, step, f.arg("b"), b_step, read)
    sums = multiplied(f, sums, factors, 0, until, unroll, ahead)
    sums = multiplied(f, sums, factors, until, f.arg("steps"))
    for r in range(n):
        begin = f.at(f.arg("begin"), f.times(r, f.arg("begin_row")))
        for j, mask in enumerate(masks):
            value = f.add(sums[r * vectors + j], f.load(begin, j * lanes, mask=mask))
            f.store(value, at[r], j * lanes, mask=mask)
    f.done()
