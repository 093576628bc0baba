"""Tiles of images, and the order in which they are processed.

Tiles have m x m outputs. Where the outputs of an image are no multiple of m, the last row and the last
column of tiles may have fewer, and need only some of the products (see `algebra.algorithm`):

    14 = 4 + 4 + 4 + 2:  F F F T        F: m x m outputs       all 36 products
                         F F F T        T: 4 x 2, 2 x 4, 2 x 2     24, 24, 16 of them
                         F F F T
                         T T T T        484 products an image instead of 576

The products of one kind are a matrix with a row for each tile that has them. To make these rows contiguous,
the tiles of some whole images are sorted: first those cut short in their columns only (m x t), then
the whole ones, then those cut in rows (t x m), then in both. Then the tiles with all columns and the tiles
with all rows are each a range of this order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..compiled.codegen.ir import I1, number, Value
from ..compiled.codegen.routine import Int, Routine
from .algebra import algorithm


class Kind(NamedTuple):
    """Outputs of a tile."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Grid:
    """Tiles of m x m outputs; of `last.rows` in the last row of tiles, `last.columns` in the last column."""

    m: int
    last: Kind

    @property
    def whole(self) -> Kind:
        return Kind(self.m, self.m)

    @property
    def n(self) -> int:
        return self.m + 2

    @property
    def kinds(self) -> list[Kind]:
        """Kinds in sorting order."""
        m, (rows, columns) = self.m, self.last
        return list(dict.fromkeys([Kind(m, columns), Kind(m, m), Kind(rows, m), Kind(rows, columns)]))

    def products(self, kind: Kind) -> list[list[int]]:
        """Indices of the products of a tile of this kind, by rows."""
        rows, columns = (algorithm(self.m, k).products for k in kind)
        return [[i * self.n + j for j in columns] for i in rows]

    def having(self, axis: int) -> int:
        """Bit mask of the products that tiles cut short on this axis have."""
        kept = algorithm(self.m, self.last[axis]).products
        return sum(1 << k for k in range(self.n**2) if divmod(k, self.n)[axis] in kept)


class Tile:
    """Tile number `q` of a batch: its image, the first row and column of its outputs, the indices of its row
    and column of tiles.
    """

    def __init__(self, f: Routine, grid: Grid, g: Mapping[str, Int], q: Int) -> None:
        self.f, self.grid = f, grid
        self.image = f.over(q, g["per_image"])
        inside = f.rest(q, g["per_image"])
        self.row, self.column = f.over(inside, g["per_row"]), f.rest(inside, g["per_row"])
        self.y, self.x = f.times(self.row, grid.m), f.times(self.column, grid.m)
        cut = [k < grid.m for k in grid.last]
        self.in_last_row = f.is_("eq", self.row, f.minus(g["per_column"], 1)) if cut[0] else number(I1, False)
        self.in_last_column = (
            f.is_("eq", self.column, f.minus(g["per_row"], 1)) if cut[1] else number(I1, False)
        )

    def kinds(self) -> list[tuple[Kind, Value]]:
        """Every kind, each with the condition that this tile is of it."""
        f, grid = self.f, self.grid
        if len(grid.kinds) == 1:
            return [(grid.whole, number(I1, True))]
        found = []
        for kind in grid.kinds:
            a, b = self.in_last_row, self.in_last_column
            a = a if kind.rows < grid.m else f.negated(a)
            b = b if kind.columns < grid.m else f.negated(b)
            found.append((kind, f.both(a, b)))
        return found


class Round:
    """Tiles that are in V at the same time: those of the units [begin, end), a unit being a tile or, if
    there are several kinds, an image.
    """

    def __init__(self, f: Routine, grid: Grid, g: Mapping[str, Int], begin: Int, end: Int) -> None:
        self.f, self.grid, self.g = f, grid, g
        self.first, self.last = f.times(begin, g["unit"]), f.times(end, g["unit"])
        self.tiles = f.minus(self.last, self.first)
        self.image = begin
        self.ends: list[Int] = [0, 0, self.tiles, self.tiles]  # of the four kinds, if there are more than one
        if len(grid.kinds) > 1:
            images = f.minus(end, begin)
            rows = f.minus(g["per_column"], int(grid.last.rows < grid.m))
            columns = f.minus(g["per_row"], int(grid.last.columns < grid.m))
            self.whole_rows, self.whole_columns = rows, columns
            first = f.times(images, rows) if grid.last.columns < grid.m else 0
            second = f.plus(first, f.times(f.times(images, rows), columns))
            third = f.plus(second, f.times(images, columns)) if grid.last.rows < grid.m else second
            self.ends = [first, second, third, self.tiles]

    @contextlib.contextmanager
    def each(self) -> Iterator[tuple[Tile, Int]]:
        """Every tile and its position in the order."""
        f, grid = self.f, self.grid
        with f.loop(self.first, self.last) as loop:
            tile = Tile(f, grid, self.g, loop.index)
            if len(grid.kinds) == 1:
                yield tile, f.minus(loop.index, self.first)
            else:
                image = f.minus(tile.image, self.image)
                both = f.plus(self.ends[2], image)
                row = f.plus(self.ends[1], f.plus(f.times(image, self.whole_columns), tile.column))
                column = f.plus(f.times(image, self.whole_rows), tile.row)
                before = f.plus(f.times(image, self.whole_rows), tile.row)
                neither = f.plus(self.ends[0], f.plus(f.times(before, self.whole_columns), tile.column))
                place = f.either(
                    tile.in_last_row,
                    f.either(tile.in_last_column, both, row),
                    f.either(tile.in_last_column, column, neither),
                )
                yield tile, place

    def having(self, product: Int) -> tuple[Int, Int]:
        """The range of tiles in order that have this product: the first one, and their number."""
        f, grid = self.f, self.grid
        if len(grid.kinds) == 1:
            return 0, self.tiles
        short_rows, short_columns = (
            f.is_("ne", f.int_op("and", f.int_op("lshr", grid.having(axis), product), 1), 0)
            for axis in (0, 1)
        )
        first = f.either(short_columns, 0, self.ends[0])
        last = f.either(short_rows, f.either(short_columns, self.ends[3], self.ends[2]), self.ends[1])
        return first, f.minus(last, first)


def whole_rounds(f: Routine, first: Int, last: Int, most: Int) -> Int:
    """Number of rounds of at most `most` from `first` to `last`."""
    return f.over(f.plus(f.minus(last, first), f.minus(most, 1)), most)


def round_of(f: Routine, first: Int, last: Int, rounds: Int, k: Int) -> tuple[Int, Int]:
    """Round k of [first, last) cut into `rounds` parts that are nearly equal."""
    count = f.minus(last, first)
    begin = f.plus(first, f.over(f.times(count, k), rounds))
    return begin, f.plus(first, f.over(f.times(count, f.plus(k, 1)), rounds))
