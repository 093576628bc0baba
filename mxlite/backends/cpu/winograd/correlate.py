"""The weight gradient as transforms and small products.

    d_weight = Gt [sum over tiles of (Bt d B) * (A dY At)] G

The sum S has (m + 2)^2 numbers for each pair of channels: too many for a cache, so it is computed in parts of
some inputs and some outputs, which stay in the second level. The transforms are recomputed for each part,
which is cheap compared with the products: no transform of the whole batch is ever stored.

S: (n n, panels, fs, v L), V: (n n, T, cs), Y: (n n, T, fs) with cs and fs channels of a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....ops.norm.norm_arrays import NO_PROLOGUE, PrologueArrays
from ....ops.scratch import carve, Piece
from ..compiled import call, width
from ..compiled.codegen.ir import Value
from ..compiled.codegen.routine import code_of, Program
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of
from .algebra import algorithm, transposed
from .grid import Grid, Round, round_of, whole_rounds
from .layer import BYTE, Layer, padded, vectors
from .linear import both_sides
from .product import outer_routine
from .taps import TAPS, write_taps
from .tiles import ADDEND_LINE, clear, gradient_routines, input_routines, LINE, NBYTES, Prologue, TileSource

_POINTERS = ("data", "d_out", "d_weight", "work", "sums", *LINE, *ADDEND_LINE)
SLOTS = (
    *_POINTERS, "gap", "share", "units", "unit", "per_image",
    "per_column", "per_row", "h", "w", "oh", "ow",
    "pad_y", "pad_x", "c", "f", "cs", "fs", "c_parts", "f_parts", "splits", "most", "v_far", "y_far", "s_far",
    "s_size", "at_v", "at_y", "at_s", "taken", "finished",
)  # fmt: skip


def correlate_entry(p: Program, grid: Grid, v: int, dtype: str, prologue: Prologue, adds: bool) -> str:
    """Entry in which every thread takes some parts; if there are fewer than threads, a part is split by
    tiles, and `finish` adds up. `adds`: accumulate into d_weight."""
    n = grid.n
    name = "correlate"
    size = NBYTES[dtype]
    into, into_y = input_routines(p, grid, dtype, prologue), gradient_routines(p, grid, dtype)
    product, finish = p.borrow(outer_routine, v), p.borrow(finish_routine, grid.m, v, adds)
    f = p.entry(name)
    g = {s: (f.pointer(k) if s in _POINTERS else f.integer(k)) for k, s in enumerate(SLOTS)}
    scratch = f.at(g["work"], f.times(f.thread, g["share"]))
    v_at, y_at = f.at(scratch, g["at_v"]), f.at(scratch, g["at_y"])
    one = f.is_("eq", g["splits"], 1)
    c_blocks, f_blocks = f.over(g["cs"], f.width), f.over(g["fs"], f.width)
    panels = f.over(g["cs"], f.width * v)
    c_row, f_row = f.times(g["cs"], 4), f.times(g["fs"], 4)
    s_panel = f.times(g["fs"], 4 * v * f.width)
    items = f.times(f.times(g["c_parts"], g["f_parts"]), g["splits"])
    clear(f, scratch, g["at_v"])
    with f.items(items, SLOTS.index("taken")) as item:
        part, split = f.over(item, g["splits"]), f.rest(item, g["splits"])
        c0 = f.times(f.rest(part, g["c_parts"]), g["cs"])
        f0 = f.times(f.over(part, g["c_parts"]), g["fs"])
        own, shared = f.at(scratch, g["at_s"]), f.at(g["sums"], f.times(item, g["s_size"]))
        s = f.either(one, own, shared)
        data = TileSource(
            f,
            into,
            f.at(g["data"], f.times(c0, size)),
            g["h"],
            g["w"],
            f.times(g["c"], size),
            c_blocks,
            scratch,
            [f.at(g[x], f.times(c0, 4)) for x in prologue.lines],
            g["gap"] if prologue.addend else None,
        )
        d_out = TileSource(
            f,
            into_y,
            f.at(g["d_out"], f.times(f0, size)),
            g["oh"],
            g["ow"],
            f.times(g["f"], size),
            f_blocks,
            scratch,
        )
        start, stop = round_of(f, 0, g["units"], g["splits"], split)
        rounds = whole_rounds(f, start, stop, g["most"])
        with f.loop(0, rounds) as r:
            begin, end = round_of(f, start, stop, rounds, r.index)
            now = Round(f, grid, g, begin, end)
            with now.each() as (tile, place):
                y, x = f.minus(tile.y, g["pad_y"]), f.minus(tile.x, g["pad_x"])
                data.read(tile, y, x, f.at(v_at, f.times(place, c_row)), 4 * f.width, g["v_far"])
                d_out.read(tile, tile.y, tile.x, f.at(y_at, f.times(place, f_row)), 4 * f.width, g["y_far"])
            fresh = f.flag(f.is_("eq", r.index, 0))
            with f.loop(0, n * n) as i:
                place, count = now.having(i.index)
                a = f.at(y_at, f.plus(f.times(i.index, g["y_far"]), f.times(place, f_row)))
                b = f.at(v_at, f.plus(f.times(i.index, g["v_far"]), f.times(place, c_row)))
                there = f.at(s, f.times(i.index, g["s_far"]))
                with f.loop(0, panels) as panel:
                    f.run(
                        product, a, f.at(b, f.times(panel.index, 4 * v * f.width)),
                        f.at(there, f.times(panel.index, s_panel)), g["fs"], count,
                        f_row, c_row, fresh,
                    )  # fmt: skip
        with f.when(one):
            to = f.at(g["d_weight"], f.times(f.plus(f.times(f0, g["c"]), c0), 36))
            with f.loop(0, g["fs"]) as row:
                f.run(
                    finish, f.at(s, f.times(row.index, 4 * v * f.width)), g["s_far"],
                    s_panel, panels, 1, g["s_size"],
                    f.at(to, f.times(f.times(row.index, g["c"]), 36)),
                )  # fmt: skip
    f.done()
    return name


def finish_routine(p: Program, m: int, v: int, adds: bool) -> str:
    """`(ptr s, i64 far, i64 panel, i64 panels, i64 splits, i64 split, ptr d_weight)`: Gt S G for one output
    and the inputs of a part; `split` bytes between the sums of `splits` splits, which are added to the
    first. `adds`: to what d_weight holds.
    """
    name = f"winograd_finish{m}x{v}x{width()}{'_adding' * adds}"
    n = m + 2
    matrix = transposed(algorithm(m).kernel)
    f = p.routine(
        name, s="ptr", far="i64", panel="i64", panels="i64", splits="i64", split="i64", d_weight="ptr"
    )
    fars = [f.times(i, f.arg("far")) for i in range(n * n)]
    with f.loop(0, f.arg("panels")) as panel:
        s = f.at(f.arg("s"), f.times(panel.index, f.arg("panel")))
        to = f.at(f.arg("d_weight"), f.times(panel.index, 36 * v * f.width))
        for j in range(v):
            at = f.at(s, 4 * f.width * j)

            with f.loop(1, f.arg("splits")) as split:
                more = f.at(at, f.times(split.index, f.arg("split")))
                with f.loop(0, n * n) as i:
                    shift = f.times(i.index, f.arg("far"))
                    f.write(f.add(f.read(f.at(at, shift)), f.read(f.at(more, shift))), f.at(at, shift))
            taps: dict[tuple[int, int], Value] = {}
            both_sides(
                f,
                matrix,
                lambda r, c: f.read(f.at(at, fars[r * n + c])),
                lambda r, c, value: taps.update({(r, c): value}),
            )
            write_taps(
                f, [taps[r, c] for r in range(3) for c in range(3)], f.at(to, 4 * TAPS * f.width * j), adds
            )
    f.done()
    return name


FINISH_SLOTS = ("sums", "d_weight", "c", "cs", "fs", "c_parts", "f_parts", "splits", "s_far", "s_size")


def finish_entry(p: Program, m: int, v: int, adds: bool) -> str:
    """Entry that adds up the splits of all parts, and transforms sums to weights; parallel over outputs."""
    name = f"finish_all{m}x{v}"
    finish = p.borrow(finish_routine, m, v, adds)
    f = p.entry(name)
    g = {s: (f.pointer(k) if k < 2 else f.integer(k)) for k, s in enumerate(FINISH_SLOTS)}
    s_panel = f.times(g["fs"], 4 * v * f.width)
    panels = f.over(g["cs"], f.width * v)
    first, last = f.share(f.times(f.times(g["c_parts"], g["f_parts"]), g["fs"]))
    with f.loop(first, last) as loop:
        part, row = f.over(loop.index, g["fs"]), f.rest(loop.index, g["fs"])
        c0 = f.times(f.rest(part, g["c_parts"]), g["cs"])
        f0 = f.times(f.over(part, g["c_parts"]), g["fs"])
        s = f.at(g["sums"], f.times(f.times(part, g["splits"]), g["s_size"]))
        to = f.at(g["d_weight"], f.times(f.plus(f.times(f.plus(f0, row), g["c"]), c0), 36))
        f.run(
            finish, f.at(s, f.times(row, 4 * v * f.width)), g["s_far"], s_panel,
            panels, g["splits"], g["s_size"], to,
        )  # fmt: skip
    f.done()
    return name


@dataclass(frozen=True)
class Correlation(Layer):
    """The weight gradient. `prologue` is applied to data first; `parts`: input and output channels
    of a part; `splits`: of the units of a part; `most` units in V and Y; `adds`: accumulate into d_weight.
    """

    prologue: Prologue
    parts: tuple[int, int]
    splits: int
    most: int
    adds: bool

    @property
    def v(self) -> int:
        """Vectors in a panel of inputs."""
        return vectors(self.parts[0])

    @property
    def cut(self) -> tuple[Any, ...]:
        """Parameters that determine the order of sums."""
        return self.parts, self.splits, self.most

    def places(self) -> dict[str, int]:
        """Offsets in one thread's scratch, and distances in it."""
        cs, fs = self.parts
        most = min(self.most, -(-self.units // self.splits)) * self.unit
        far = {"v_far": 4 * most * cs + 64, "y_far": 4 * most * fs + 64, "s_far": 4 * cs * fs + 64}
        s_size = self.products * far["s_far"]
        at_v = padded(
            max(self.grid.n * self.c, self.grid.m * self.f) * self.itemsize
        )  # zeros for a row of a tile
        at_y = at_v + padded(self.products * far["v_far"])
        at_s = at_y + padded(self.products * far["y_far"])
        share = padded(at_s + (s_size if self.splits == 1 else 0), 4096) + 64
        return {**far, "s_size": s_size, "at_v": at_v, "at_y": at_y, "at_s": at_s, "share": share}

    def pieces(self) -> list[Piece]:
        places = self.places()
        sums = self.splits * (self.c // self.parts[0]) * (self.f // self.parts[1]) if self.splits > 1 else 0
        return [((self.threads * places["share"],), BYTE), ((sums * places["s_size"],), BYTE)]

    def connect(
        self, d_out: Any, data: Any, d_weight: Any, work: Any, norm: PrologueArrays = NO_PROLOGUE
    ) -> Run:
        """The call that computes `d_weight`. `norm`: the arrays of the prologue."""
        own, sums = carve(work, self.pieces())
        keep = (d_out, data, d_weight, work, *norm)
        lines = norm.factor, norm.shift, norm.addend_factor, norm.addend_shift
        values = {
            **self.slots(), **self.places(), "data": address_of(data), "d_out": address_of(d_out),
            "d_weight": address_of(d_weight), "work": address_of(own), "sums": address_of(sums),
            **dict(zip((*LINE, *ADDEND_LINE), map(address_of, lines))),
            "gap": 0 if norm.addend is None else address_of(norm.addend) - address_of(data),
            "cs": self.parts[0], "c_parts": self.c // self.parts[0],
            "fs": self.parts[1], "f_parts": self.f // self.parts[1],
            "splits": self.splits, "most": self.most, "taken": 0, "finished": 0,
        }  # fmt: skip
        code, name = code_of(correlate_entry, self.grid, self.v, self.dtype, self.prologue, self.adds)
        calls = [call(code, name, [values[s] for s in SLOTS], self.threads, keep)]
        if self.splits > 1:
            code, name = code_of(finish_entry, self.grid.m, self.v, self.adds)
            calls.append(call(code, name, [values[s] for s in FINISH_SLOTS], self.threads, keep))
        return in_turn(calls)
