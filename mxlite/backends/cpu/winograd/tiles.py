"""Tiles of images, in and out of the domain of the products.

A tile is n x n inputs, of which the neighbours overlap by two, and m x m outputs, n = m + 2. Tiles at an edge
reach over it: such a tile is gathered in a small dense block first, zeros outside the image, and written
through another one.

V: (n n, C / L, T, L), the transformed inputs of T tiles; M: (n n, T, v L), sums of products of one panel of
outputs.
"""

from __future__ import annotations

from .algebra import algorithm, transposed
from .linear import both_sides
from .routine import Int, Program, Routine

NBYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def input_routine(p: Program, m: int, dtype: str) -> str:
    """`(ptr data, i64 row, i64 column, i64 blocks, ptr v, i64 step, i64 far)`: Bt d B of one tile, all channels.

    `row`, `column`: bytes between rows and columns of `data`; `step`, `far`: bytes between blocks of channels
    and between products of V.
    """
    return _into(p, f"input{m}_{dtype}", algorithm(m).input, dtype)


def gradient_routine(p: Program, m: int, dtype: str) -> str:
    """As `input_routine`, of the gradient of the outputs: A dY At."""
    return _into(p, f"gradient{m}_{dtype}", transposed(algorithm(m).output), dtype)


def _into(p: Program, name: str, matrix: tuple[tuple[float, ...], ...], dtype: str) -> str:
    n = len(matrix)
    f = p.routine(name, data="ptr", row="i64", column="i64", blocks="i64", v="ptr", step="i64", far="i64")
    nbytes = f.width * NBYTES[dtype]
    columns = [f.times(c, "%column") for c in range(len(matrix[0]))]
    rows = [f.at("%data", f.times(r, "%row")) for r in range(len(matrix[0]))]
    fars = [f.times(i, "%far") for i in range(n * n)]
    with f.loop("0", "%blocks") as loop:
        shift = f.times(loop.index, nbytes)
        at = [f.at(row, shift) for row in rows]
        v = f.at("%v", f.times(loop.index, "%step"))
        both_sides(
            f,
            matrix,
            lambda r, c: f.read(f.at(at[r], columns[c]), dtype),
            lambda i, j, value: f.write(value, f.at(v, fars[i * n + j])),
        )
    f.done()
    return name


def output_routine(p: Program, m: int, v: int, dtype: str) -> str:
    """`(ptr m, i64 far, ptr bias, ptr out, i64 row, i64 column)`: At M A plus bias, of one tile and panel."""
    name = f"output{m}x{v}_{dtype}"
    matrix = algorithm(m).output
    n = m + 2
    f = p.routine(name, m="ptr", far="i64", bias="ptr", out="ptr", row="i64", column="i64")
    fars = [f.times(i, "%far") for i in range(n * n)]
    columns = [f.times(c, "%column") for c in range(m)]
    rows = [f.at("%out", f.times(r, "%row")) for r in range(m)]
    for j in range(v):
        bias = f.read(f.at("%bias", 4 * f.width * j))
        at = f.at("%m", 4 * f.width * j)
        out = [f.at(row, NBYTES[dtype] * f.width * j) for row in rows]
        both_sides(
            f,
            matrix,
            lambda r, c: f.read(f.at(at, fars[r * n + c])),
            lambda r, c, value: f.write(f.add(value, bias), f.at(out[r], columns[c]), dtype),
        )
    f.done()
    return name


def gather_routine(p: Program, size: int, dtype: str) -> str:
    """`(ptr image, i64 y, i64 x, i64 h, i64 w, i64 pixel, i64 blocks, ptr tile)`: a dense copy of the size x
    size pixels from (y, x) on, zeros outside the image of h x w pixels, which are `pixel` bytes apart.
    """
    name = f"gather{size}_{dtype}"
    f = p.routine(
        name, image="ptr", y="i64", x="i64", h="i64", w="i64", pixel="i64", blocks="i64", tile="ptr"
    )
    kind = f"<{f.width} x {'float' if dtype == 'float32' else 'i16'}>"
    line = f.width * NBYTES[dtype]
    copied = f.times("%blocks", line)
    with f.loop("0", str(size)) as r:
        y = f.plus("%y", r.index)
        with f.loop("0", str(size)) as c:
            x = f.plus("%x", c.index)
            inside = f.emit(f"and i1 {f.is_('ult', y, '%h')}, {f.is_('ult', x, '%w')}")
            source = f.at("%image", f.times(f.plus(f.times(y, "%w"), x), "%pixel"))
            target = f.at("%tile", f.times(f.plus(f.times(r.index, size), c.index), copied))
            outside = f.emit(f"xor i1 {inside}, true")
            with f.when(inside):
                with f.loop("0", copied, line) as k:
                    value = f.emit(f"load {kind}, ptr {f.at(source, k.index)}, align 2")
                    f.do(f"store {kind} {value}, ptr {f.at(target, k.index)}, align 2")
            with f.when(outside):
                with f.loop("0", copied, line) as k:
                    f.do(f"store {kind} zeroinitializer, ptr {f.at(target, k.index)}, align 2")
    f.done()
    return name


def scatter_routine(p: Program, m: int, v: int, dtype: str) -> str:
    """`(ptr tile, ptr out, i64 rows, i64 columns, i64 row, i64 column)`: the first rows x columns pixels of a
    dense m x m tile of one panel, into an image.
    """
    name = f"scatter{m}x{v}_{dtype}"
    f = p.routine(name, tile="ptr", out="ptr", rows="i64", columns="i64", row="i64", column="i64")
    kind = f"<{f.width * v} x {'float' if dtype == 'float32' else 'i16'}>"
    nbytes = f.width * v * NBYTES[dtype]
    with f.loop("0", "%rows") as r:
        with f.loop("0", "%columns") as c:
            source = f.at("%tile", f.times(f.plus(f.times(r.index, m), c.index), nbytes))
            target = f.at("%out", f.plus(f.times(r.index, "%row"), f.times(c.index, "%column")))
            value = f.emit(f"load {kind}, ptr {source}, align 2")
            f.do(f"store {kind} {value}, ptr {target}, align 2")
    f.done()
    return name


class Tile:
    """Tile number `q` of a batch: `y`, `x` are the first row and column of its outputs."""

    def __init__(self, f: Routine, q: Int, m: int, per_image: Int, per_row: Int) -> None:
        self.f, self.m = f, m
        self.image = f.over(q, per_image)
        inside = f.rest(q, per_image)
        self.y = f.times(f.over(inside, per_row), m)
        self.x = f.times(f.rest(inside, per_row), m)


class Source:
    """Images (n, h, w, ...) that are read tile by tile, with `pixel` bytes between the channels of neighbours
    and `blocks` vectors of them wanted. `sheet` is scratch for one tile.
    """

    def __init__(
        self, f: Routine, data: str, h: Int, w: Int, pixel: Int, blocks: Int, sheet: str, dtype: str
    ) -> None:
        self.f, self.data, self.h, self.w, self.pixel, self.blocks = f, data, h, w, pixel, blocks
        self.sheet = sheet
        self.row = f.times(pixel, w)
        self.sheet_pixel = f.times(blocks, f.width * NBYTES[dtype])

    def read(
        self, image: Int, y: Int, x: Int, size: int, gather: str, into: str, to: str, step: Int, far: Int
    ) -> None:
        """Call `into` (see `input_routine`) on the size x size pixels at (y, x)."""
        f = self.f
        start = f.at(self.data, f.times(f.times(image, self.h), self.row))
        inside = f.emit(f"and i1 {f.is_('sge', y, 0)}, {f.is_('sge', x, 0)}")
        inside = f.emit(f"and i1 {inside}, {f.is_('sle', f.plus(y, size), self.h)}")
        inside = f.emit(f"and i1 {inside}, {f.is_('sle', f.plus(x, size), self.w)}")
        with f.when(f.emit(f"xor i1 {inside}, true")):
            f.run(
                gather, ("ptr", start), ("i64", y), ("i64", x), ("i64", self.h), ("i64", self.w),
                ("i64", self.pixel), ("i64", self.blocks), ("ptr", self.sheet),
            )  # fmt: skip
        there = f.at(start, f.plus(f.times(y, self.row), f.times(x, self.pixel)))
        source = f.emit(f"select i1 {inside}, ptr {there}, ptr {self.sheet}")
        row = f.emit(f"select i1 {inside}, i64 {self.row}, i64 {f.times(self.sheet_pixel, size)}")
        column = f.emit(f"select i1 {inside}, i64 {self.pixel}, i64 {self.sheet_pixel}")
        f.run(
            into, ("ptr", source), ("i64", row), ("i64", column), ("i64", self.blocks), ("ptr", to),
            ("i64", step), ("i64", far),
        )  # fmt: skip


def whole_rounds(f: Routine, first: Int, last: Int, most: Int) -> Int:
    """How many rounds of at most `most` it takes from `first` to `last`."""
    return f.over(f.plus(f.minus(last, first), f.minus(most, 1)), most)


def round_of(f: Routine, first: Int, last: Int, rounds: Int, k: Int) -> tuple[Int, Int]:
    """Round k of [first, last) cut into `rounds` parts that are nearly equal."""
    count = f.minus(last, first)
    begin = f.plus(first, f.over(f.times(count, k), rounds))
    return begin, f.plus(first, f.over(f.times(count, f.plus(k, 1)), rounds))
