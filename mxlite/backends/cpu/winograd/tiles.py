"""Transforms of image tiles into and out of the domain of the products.

A tile is n x n inputs, of which the neighbours overlap by two, and m x m outputs, n = m + 2. A tile at an
edge reaches over it. Inputs outside are zeros: rows are read from a buffer of zeros, columns from the
nearest pixel and then masked. Outputs outside are written where a valid output is written later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....ops.norm.norm_act import is_lined
from ..compiled.codegen.ir import I1, number, Value
from ..compiled.codegen.routine import Int, Program, Routine
from .algebra import algorithm, Matrix, transposed
from .grid import Grid, Kind, Tile
from .linear import both_sides

NBYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


LINE = ("line_factor", "line_shift")
"""Slots of the addresses of a prologue's factors and shifts, float32."""
ADDEND_LINE = ("addend_factor", "addend_shift")
"""The same of its addend."""


class Prologue(NamedTuple):
    """Prologue of an input: a factor and a shift for its channel; an addend, one of
    `norm_act.ADDENDS`; ReLU. Inputs outside the image stay zeros.
    """

    line: bool = False
    relu: bool = False
    addend: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Slots of the vectors of channels that it reads."""
        return (*(LINE if self.line else ()), *(ADDEND_LINE if is_lined(self.addend) else ()))


class Into(NamedTuple):
    """Names of the routines that transform a tile: one anywhere inside, those of each kind at an edge."""

    inside: str
    edges: dict[Kind, str]
    size: int


def input_routines(p: Program, grid: Grid, dtype: str, prologue: Prologue) -> Into:
    """Bt d B of one tile, for `TileSource`."""
    return _into(p, "input", grid, dtype, prologue, lambda k: algorithm(grid.m, k).input)


def gradient_routines(p: Program, grid: Grid, dtype: str) -> Into:
    """A dY At of one tile, for `TileSource`."""
    return _into(p, "gradient", grid, dtype, Prologue(), lambda k: transposed(algorithm(grid.m, k).output))


def _into(
    p: Program, what: str, grid: Grid, dtype: str, prologue: Prologue, matrix: Callable[[int], Matrix]
) -> Into:
    to = {"blocks": "i64", "v": "ptr", "step": "i64", "far": "i64"}
    to |= dict.fromkeys(prologue.lines, "ptr")
    if prologue.addend:
        to["gap"] = "i64"
    whole = matrix(grid.m)
    size = len(whole[0])
    f = p.routine(what, data="ptr", row="i64", column="i64", **to)
    rows = [f.at(f.arg("data"), f.times(r, f.arg("row"))) for r in range(size)]
    columns = [f.times(c, f.arg("column")) for c in range(size)]
    others = [f.at(row, f.arg("gap")) for row in rows] if prologue.addend else []
    _transform(f, whole, whole, grid.products(grid.whole), rows, others, columns, None, dtype, prologue)
    edges = {}
    for kind in grid.kinds:
        edges[kind] = f"{what}{kind.rows}x{kind.columns}"
        a, b = matrix(kind.rows), matrix(kind.columns)
        _edge(p, edges[kind], a, b, grid.products(kind), to, dtype, prologue)
    return Into(what, edges, size)


def _edge(
    p: Program,
    name: str,
    a: Matrix,
    b: Matrix,
    products: list[list[int]],
    to: dict[str, str],
    dtype: str,
    prologue: Prologue,
) -> None:
    f = p.routine(name, image="ptr", zeros="ptr", y="i64", x="i64", h="i64", w="i64", pixel="i64", **to)
    row = f.times(f.arg("w"), f.arg("pixel"))
    left = f.most(f.arg("x"), 0)
    start = f.at(f.arg("image"), f.times(left, f.arg("pixel")))
    rows, others, columns = [], [], []
    in_rows, in_columns = [], []
    for k in range(len(a[0])):
        y = f.plus(f.arg("y"), k)
        there = f.at(start, f.times(y, row))
        inside = f.is_("ult", y, f.arg("h"))
        rows.append(f.either(inside, there, f.arg("zeros")))
        if prologue.addend:
            others.append(f.either(inside, f.at(there, f.arg("gap")), f.arg("zeros")))
        if prologue.line:
            in_rows.append(f.every_lane(inside))
    for k in range(len(b[0])):
        x = f.plus(f.arg("x"), k)
        nearest = f.least(f.most(x, left), f.minus(f.arg("w"), 1))
        columns.append(f.times(f.minus(nearest, left), f.arg("pixel")))
        in_columns.append(f.every_lane(f.is_("ult", x, f.arg("w"))))
    _transform(f, a, b, products, rows, others, columns, (in_rows, in_columns), dtype, prologue)


def _transform(
    f: Routine,
    a: Matrix,
    b: Matrix,
    products: list[list[int]],
    rows: list[Value],
    others: list[Value],
    columns: Sequence[Int],
    masks: tuple[list[Value], list[Value]] | None,
    dtype: str,
    prologue: Prologue,
) -> None:
    """Emit the transform of all `blocks` of channels of one tile; pixel (r, c) is at rows[r] + columns[c],
    the addend's `gap` bytes further.

    `masks` tell for each row and each column if it is in the image. A row that is not is read as
    zeros; with a shift of 0 it stays zeros.
    """
    fars = {i: f.times(i, f.arg("far")) for row in products for i in row}
    zero = f.const(0.0)
    with f.loop(0, f.arg("blocks")) as loop:
        away = f.times(loop.index, f.width * NBYTES[dtype])
        at = [f.at(row, away) for row in rows]
        v = f.at(f.arg("v"), f.times(loop.index, f.arg("step")))
        more = [f.at(row, away) for row in others]
        channels = f.times(loop.index, 4 * f.width)
        vectors = {x: f.read(f.at(f.arg(x), channels)) for x in prologue.lines}

        def lined(value: Value, r: int, factor: str, shift: str) -> Value:
            here = vectors[shift] if masks is None else f.select(masks[0][r], vectors[shift], zero)
            return f.fma(value, vectors[factor], here)

        def load(r: int, c: int) -> Value:
            value = f.read(f.at(at[r], columns[c]), dtype)
            if prologue.line:
                value = lined(value, r, *LINE)
            if prologue.addend:
                added = f.read(f.at(more[r], columns[c]), dtype)
                if is_lined(prologue.addend):
                    added = lined(added, r, *ADDEND_LINE)
                if prologue.addend == "relu":
                    added = f.above(added, zero)
                value = f.add(value, added)
            if prologue.relu:
                value = f.above(value, zero)
            return value if masks is None else f.select(masks[1][c], value, zero)

        def store(i: int, j: int, value: Value) -> None:
            f.write(value, f.at(v, fars[products[i][j]]))

        both_sides(f, a, load, store, b, once=prologue.line)
    f.done()


class Epilogue(NamedTuple):
    """Epilogue of an output: an addend, ReLU; and a factor before the bias."""

    add: bool = False
    relu: bool = False
    scale: bool = False


def output_routine(p: Program, grid: Grid, kind: Kind, v: int, dtype: str, epilogue: Epilogue) -> str:
    """`(ptr m, i64 panel, i64 panels, i64 far, ptr factor, ptr bias, ptr out, ptr addend, i64 row, i64
    column, i64 rows, i64 columns, ptr spare)`: At M A [factor] plus bias, for one tile with `rows` x
    `columns` outputs in the image.

    M: (n n, panels, tiles, v L), with `far` bytes between products and `panel` between panels. `spare` is
    scratch of one panel.
    """
    name = f"output{kind.rows}x{kind.columns}"
    a, b = (algorithm(grid.m, k).output for k in kind)
    products = grid.products(kind)
    f = p.routine(
        name, m="ptr", panel="i64", panels="i64", far="i64", factor="ptr", bias="ptr", out="ptr",
        addend="ptr", row="i64", column="i64", rows="i64", columns="i64", spare="ptr",
    )  # fmt: skip
    fars = {i: f.times(i, f.arg("far")) for row in products for i in row}
    last_row, last_column = f.minus(f.arg("rows"), 1), f.minus(f.arg("columns"), 1)
    rows = [f.times(f.least(r, last_row), f.arg("row")) for r in range(kind.rows)]
    columns = [f.times(f.least(c, last_column), f.arg("column")) for c in range(kind.columns)]
    line = f.width * NBYTES[dtype]
    # The addend may alias the output: nothing in the image may be written before it is read.
    with f.loop(0, f.arg("panels")) as panel:
        shift = f.times(panel.index, line * v)
        vectors = f.times(panel.index, 4 * f.width * v)
        own_bias, own_factor = f.at(f.arg("bias"), vectors), f.at(f.arg("factor"), vectors)
        own_m = f.at(f.arg("m"), f.times(panel.index, f.arg("panel")))
        for j in range(v):
            bias = f.read(f.at(own_bias, 4 * f.width * j))
            factor = f.read(f.at(own_factor, 4 * f.width * j)) if epilogue.scale else None
            at = f.at(own_m, 4 * f.width * j)
            out, addend = (
                [f.at(f.at(f.arg(x), f.plus(row, line * j)), shift) for row in rows]
                for x in ("out", "addend")
            )

            def store(r: int, c: int, value: Value) -> None:
                value = f.add(f.mul(value, factor) if factor is not None else value, bias)
                if epilogue.add:
                    value = f.add(value, f.read(f.at(addend[r], columns[c]), dtype))
                if epilogue.relu:
                    value = f.above(value, f.const(0.0))
                if epilogue.add:
                    inside = f.both(f.is_("slt", r, f.arg("rows")), f.is_("slt", c, f.arg("columns")))
                    there = f.at(out[r], columns[c])
                    there = f.either(inside, there, f.at(f.arg("spare"), line * j))
                else:
                    there = f.at(out[r], columns[c])
                f.write(value, there, dtype)

            both_sides(f, a, lambda r, c: f.read(f.at(at, fars[products[r][c]])), store, b, backwards=True)
    f.done()
    return name


class TileSource:
    """Images (n, h, w, ...) that are read tile by tile: `blocks` vectors of the channels of each pixel,
    pixels being `pixel` bytes apart. At `zeros` there are as many pixels of zeros as a tile has columns.
    `line`: addresses of the factors and the shifts of these channels, if `into` needs any; `gap`: bytes from
    the images to their addends.
    """

    def __init__(
        self,
        f: Routine,
        into: Into,
        data: Value,
        h: Int,
        w: Int,
        pixel: Int,
        blocks: Int,
        zeros: Value,
        line: Sequence[Value] = (),
        gap: Int | None = None,
    ) -> None:
        self.f, self.into, self.data, self.h, self.w = f, into, data, h, w
        self.pixel, self.blocks, self.zeros, self.line, self.gap = pixel, blocks, zeros, line, gap
        self.row = f.times(pixel, w)

    def read(self, tile: Tile, y: Int, x: Int, to: Value, step: Int, far: Int) -> None:
        """Transform `tile`, whose first pixel is (y, x), into products `far` bytes apart, `step` bytes
        between blocks.
        """
        f, size = self.f, self.into.size
        start = f.at(self.data, f.times(f.times(tile.image, self.h), self.row))
        rest: list[Int] = [self.blocks, to, step, far]
        rest += self.line
        rest += [self.gap] if self.gap is not None else []
        inside = f.both(f.is_("sge", y, 0), f.is_("sge", x, 0))
        inside = f.both(inside, f.is_("sle", f.plus(y, size), self.h))
        inside = f.both(inside, f.is_("sle", f.plus(x, size), self.w))
        edge: list[Int] = [
            start, self.zeros, y, x, self.h, self.w,
            self.pixel,
        ]  # fmt: skip
        for kind, is_kind in tile.kinds():
            whole = kind == tile.grid.whole
            with f.when(is_kind):
                with f.when(f.negated(inside) if whole else number(I1, True)):
                    f.run(self.into.edges[kind], *edge, *rest)
                if whole:
                    with f.when(inside):
                        there = f.at(start, f.plus(f.times(y, self.row), f.times(x, self.pixel)))
                        f.run(self.into.inside, there, self.row, self.pixel, *rest)


def clear(f: Routine, at: Value, nbytes: Int) -> None:
    """Write zeros at an address: `nbytes`, rounded up to whole vectors."""
    with f.loop(0, nbytes, 4 * f.width) as loop:
        f.write(f.const(0.0), f.at(at, loop.index))
