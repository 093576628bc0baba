"""Schedules of generated matrix products: what their code depends on besides types, layouts and sizes.

    C (m, n) = A (m, k) B (k, n)

A schedule is plain data. `default` gives the one that runs, `legal` all that are worth a measurement, by
construction: the sums of a tile fit in the registers, a panel and a block in the caches. Two schedules of
equal `depth` give the same bits: nothing else changes the order of a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as every
from typing import NamedTuple

from ..codegen import tile
from ..codegen.emitter import width

NEAR_NBYTES = 32 << 10
"""Bytes of a core's first cache, as is usual. They are not read from this CPU: the order of sums follows from
them, and is to be the same on all.
"""
CACHE_NBYTES = 1 << 20
"""Bytes of a core's second cache, as is usual; for the same reason not this CPU's."""
FAR_CYCLES = 256
"""Cycles until a number arrives from the last cache, about, if others wait, too."""
FEW_TILES = 3
"""Tiles that have read a panel of B in the time in which it is read, written as a copy, and read again."""
LEAST_DEPTH, DEPTH, MOST_DEPTH = 64, 512, 1024
"""Steps that a block has room for: at least, at most by default, and at most."""
ROWS, COLUMNS = 196, 512
"""Rows and columns of a block by default."""
AHEAD = 32
"""Bytes of the next copy that are prefetched in a step by default."""


class MatricesForm(NamedTuple):
    """Types, and True if A and B are column-major. bias: its type, or "".

    line: "a" or "b" if that is normalized, which must be row-major; relu: True if by a rectifier, too.
    addend: the addend of B before that, one of `norm_act.ADDENDS`; it has B's layout, GAP bytes further.
    """

    a: str = "float32"
    b: str = "float32"
    c: str = "float32"
    a_turned: bool = False
    b_turned: bool = False
    bias: str = ""
    line: str = ""
    relu: bool = False
    addend: str = ""

    @property
    def reads_a(self) -> bool:
        """True if A can be multiplied where it lies."""
        return self.a == "float32" and self.line != "a"

    @property
    def reads_b(self) -> bool:
        """True if B can be multiplied where it lies: its rows are contiguous numbers."""
        return self.b == "float32" and self.line != "b" and not self.b_turned


class MatricesTask(NamedTuple):
    """A product: its form and its sizes."""

    form: MatricesForm
    m: int
    n: int
    k: int


@dataclass(frozen=True)
class MatricesSchedule:
    """How a product is computed. All fields are whole numbers; those of 0 and 1 say no and yes.

    rows, vectors: of the tile of C that stays in registers; a panel of B is `vectors` wide. unroll: steps of
    K in a round of the innermost loop. depth: steps of K at a time, a multiple of LEAST_DEPTH. block_rows,
    block_columns: rows of A and columns of B at a time, multiples of a tile's.

    packs_a, packs_b: a block is copied first, so that it is contiguous. by_tiles: the loop order in a block;
    a tile of A meets all panels of B before the next one, else a panel all tiles. by_rows: threads share rows
    of C, else columns. ahead: bytes of the next copy that a step prefetches. reach: steps ahead of the sums
    at which B is prefetched where it lies.
    """

    rows: int
    vectors: int
    unroll: int
    depth: int
    block_rows: int
    block_columns: int
    packs_a: int
    packs_b: int
    by_tiles: int
    by_rows: int
    ahead: int
    reach: int

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.vectors * width()

    def allows(self, task: MatricesTask) -> bool:
        """True if there is a kernel of this schedule for a task."""
        return (
            1 <= self.rows <= most_rows(self.vectors)
            and 1 <= self.vectors <= tile.most_vectors()
            and self.unroll in (1, 2, 4, 8)
            and LEAST_DEPTH <= self.depth <= MOST_DEPTH
            and self.depth % LEAST_DEPTH == 0
            and self.block_rows > 0 == self.block_rows % self.rows
            and self.block_columns > 0 == self.block_columns % self.panel
            and {self.packs_a, self.packs_b, self.by_tiles, self.by_rows} <= {0, 1}
            and bool(self.packs_a or task.form.reads_a)
            and bool(self.packs_b or task.form.reads_b)
            and self.ahead >= 0
            and self.reach >= 0
        )


def most_rows(vectors: int) -> int:
    """Rows of a tile that registers hold, beside a step of B and a number of A; at most a vector, by which
    transposed blocks are copied."""
    return min(width(), (tile.registers() - 1 - vectors) // vectors)


def depth_of(k: int) -> int:
    """Room in a block for products of depth k."""
    depth = LEAST_DEPTH
    while depth < min(k, DEPTH):
        depth *= 2
    return depth


def default(task: MatricesTask, threads: int) -> MatricesSchedule:
    """The schedule of a product that nothing else is known of.

    B is read where it lies if so few rows meet it that they are done before a copy would be: as many numbers
    of a row of B at once as registers allow, in blocks whose panels fit in the first cache.
    """
    by_rows = int(task.m > task.n)
    if task.form.reads_b and task.m <= FEW_TILES * most_rows(tile.most_vectors()):
        vectors = tile.most_vectors()
        rows = _even(task.m, vectors)
        panel = vectors * width()
        depth = _whole(NEAR_NBYTES // (4 * panel), LEAST_DEPTH)
        return MatricesSchedule(
            rows, vectors, unroll=4, depth=depth,
            block_rows=_whole(ROWS, rows), block_columns=-(-task.n // panel) * panel,
            packs_a=1, packs_b=0, by_tiles=0, by_rows=by_rows, ahead=0, reach=_reach(rows, vectors),
        )  # fmt: skip
    rows, vectors = most_rows(2), 2
    return MatricesSchedule(
        rows, vectors, unroll=4, depth=depth_of(task.k),
        block_rows=_whole(ROWS, rows), block_columns=_whole(COLUMNS, vectors * width()),
        packs_a=1, packs_b=1, by_tiles=0, by_rows=by_rows, ahead=AHEAD, reach=0,
    )  # fmt: skip


def legal(task: MatricesTask, threads: int) -> Iterator[MatricesSchedule]:
    """The schedules of a product that may be fast, some hundreds to some thousands in one fixed order: the
    default, and then others."""
    form, first = task.form, default(task, threads)
    yield first
    packs = [(a, b) for a in (1, 0) for b in (1, 0) if (a or form.reads_a) and (b or form.reads_b)]
    shared = (0, 1) if threads > 1 else (int(task.m > task.n),)
    for vectors in range(1, tile.most_vectors() + 1):
        panel = vectors * width()
        heights = dict.fromkeys((most_rows(vectors), _even(task.m, vectors)))
        for rows, depth, (packs_a, packs_b) in every(heights, _depths(task.k, panel), packs):
            across = range(min(task.n, 2 * COLUMNS), 0, -COLUMNS // 2) if packs_b else (task.n,)
            wide = dict.fromkeys(-(-n // panel) * panel for n in across)
            room = _whole(CACHE_NBYTES // 2 // (4 * depth), rows)
            high = dict.fromkeys(min(n, -(-task.m // rows) * rows) for n in (room, _whole(room // 2, rows)))
            orders = (0, 1) if task.m > rows and task.n > panel else (0,)
            aheads = (0, AHEAD) if packs_a or packs_b else (0,)
            reaches = (0,) if packs_b else (0, _reach(rows, vectors), 2 * _reach(rows, vectors))
            for more in every((2, 4, 8), high, wide, orders, shared, aheads, reaches):
                unroll, block_rows, block_columns, by_tiles, by_rows, ahead, reach = more
                found = MatricesSchedule(
                    rows, vectors, unroll, depth, block_rows, block_columns, packs_a, packs_b, by_tiles,
                    by_rows, ahead, reach,
                )  # fmt: skip
                if found != first:
                    yield found


def _depths(k: int, panel: int) -> list[int]:
    """Steps at a time: as many as there are, or so few that a panel leaves room in the second cache."""
    found = [depth for depth in (64, 128, 256, 512, MOST_DEPTH) if 4 * depth * panel <= CACHE_NBYTES // 4]
    return [depth for depth in found if depth // 2 < max(k, LEAST_DEPTH)]


def _even(m: int, vectors: int) -> int:
    """Rows of as few tiles as possible, about equally high."""
    return -(-m // -(-m // most_rows(vectors)))


def _reach(rows: int, vectors: int) -> int:
    """Steps, of a vector multiplication a cycle, that pass until a number arrives from the last cache."""
    return -(-FAR_CYCLES // (rows * vectors))


def _whole(number: int, of: int) -> int:
    """The largest multiple of `of` up to a number, and at least one."""
    return max(1, number // of) * of
