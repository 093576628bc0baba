"""A convolution as transforms and small products.

The work is cut into items: a group of tiles and a part of the output channels, each processed by one
thread from input to output images. The buffers of an item stay in the second level of cache:

    for each part of the input channels:            cs channels
        U: (fs / v L, n n, cs + 1, v L)             made here, or before for all (one part, all outputs)
        for some tiles of the group:                T tiles
            V: (n n, cs / L, T, L)                  from the data
            M: (n n, fs / v L, tiles, v L) += V U
    from M to the output

With few channels U is small, and computed once, or by each thread for itself; groups are few tiles then. With
many channels it would be larger than the data, so each item computes the part it needs, for a group of many
tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ....ops.scratch import carve, Piece
from ..compiled import call, width
from ..compiled.codegen.routine import code_of, Int, Program
from ..onednn import Run
from ..onednn.primitive import address_of
from .grid import Grid, Round, round_of, whole_rounds
from .kernels import far_of, weight_routine
from .layer import BYTE, Layer, padded, vectors
from .product import rows_routine
from .taps import TAPS
from .tiles import clear, Epilogue, input_routines, LINE, NBYTES, output_routine, Prologue, TileSource

_POINTERS = ("data", "weight", "u", "factor", "bias", "out", "addend", "work", *LINE)
SLOTS = (
    *_POINTERS, "lane", "step", "backwards", "share", "units", "unit", "per_image", "per_column",
    "per_row", "h", "w", "oh", "ow", "pad_y",
    "pad_x", "c", "f", "cs", "fs", "groups", "most", "v_far", "m_far", "has_bias", "made",
    "at_u", "at_v", "at_m",
    "at_zero", "taken", "finished",
)  # fmt: skip


class Made(IntEnum):
    """When U is computed: by all threads together, by each thread, before its items; for each item."""

    SHARED = 0
    BY_THREAD = 1
    BY_ITEM = 2


def convolve_entry(p: Program, grid: Grid, v: int, dtype: str, epilogue: Epilogue, prologue: Prologue) -> str:
    """Entry in which every thread processes items until there are none."""
    n = grid.n
    name = "convolve"
    into = input_routines(p, grid, dtype, prologue)
    product, weights = p.borrow(rows_routine, v), p.borrow(weight_routine, grid.m, v)
    out_of = {kind: output_routine(p, grid, kind, v, dtype, epilogue) for kind in grid.kinds}
    f = p.entry(name)
    g = {s: (f.pointer(k) if s in _POINTERS else f.integer(k)) for k, s in enumerate(SLOTS)}
    size = NBYTES[dtype]
    line = 4 * f.width
    scratch = f.at(g["work"], f.times(f.thread, g["share"]))
    v_at, m_at, zeros = f.at(scratch, g["at_v"]), f.at(scratch, g["at_m"]), f.at(scratch, g["at_zero"])
    clear(f, zeros, f.minus(g["at_u"], g["at_zero"]))
    shared, by_item = f.is_("eq", g["made"], Made.SHARED), f.is_("eq", g["made"], Made.BY_ITEM)
    u_at = f.either(shared, g["u"], f.at(scratch, g["at_u"]))
    has_bias = f.is_("ne", g["has_bias"], 0)
    bias = f.either(has_bias, g["bias"], zeros)
    in_pixel, out_pixel = f.times(g["c"], size), f.times(g["f"], size)
    out_row = f.times(out_pixel, g["ow"])
    panels, blocks = f.over(g["fs"], v * f.width), f.over(g["cs"], f.width)
    u_far = far_of(f, g["cs"], v)
    c_parts = f.over(g["c"], g["cs"])

    def make_u(f0: Int, c0: Int, first: Int, last: Int) -> None:
        source = f.at(g["weight"], f.plus(f.times(f0, g["lane"]), f.times(c0, g["step"])))
        f.run(weights, source, g["lane"], g["step"], g["backwards"], u_at, u_far, panels, first, last)

    with f.when(f.is_("eq", g["made"], Made.BY_THREAD)):
        make_u(0, 0, 0, g["cs"])
    with f.when(shared):
        make_u(0, 0, *f.share(g["cs"]))
        f.meet()
    with f.items(f.times(f.over(g["f"], g["fs"]), g["groups"]), SLOTS.index("taken")) as item:
        f0 = f.times(f.over(item, g["groups"]), g["fs"])
        start, stop = round_of(f, 0, g["units"], g["groups"], f.rest(item, g["groups"]))
        group = f.times(f.minus(stop, start), g["unit"])
        m_panel = f.times(group, line * v)
        rounds = whole_rounds(f, start, stop, g["most"])
        own_bias = f.at(bias, f.times(f0, f.either(has_bias, 4, 0)))
        own_factor = f.at(g["factor"], f.times(f0, 4))
        with f.loop(0, c_parts) as part:
            c0 = f.times(part.index, g["cs"])
            own_line = [f.at(g[x], f.times(c0, 4)) for x in LINE] if prologue.line else []
            own_data = f.at(g["data"], f.times(c0, size))
            images = TileSource(f, into, own_data, g["h"], g["w"], in_pixel, blocks, zeros, own_line)
            with f.when(by_item):
                make_u(f0, c0, 0, g["cs"])
            fresh = f.flag(f.is_("eq", part.index, 0))
            with f.loop(0, rounds) as r:
                begin, end = round_of(f, start, stop, rounds, r.index)
                now = Round(f, grid, g, begin, end)
                step = f.times(now.tiles, line)
                with now.each() as (tile, place):
                    y, x = f.minus(tile.y, g["pad_y"]), f.minus(tile.x, g["pad_x"])
                    images.read(tile, y, x, f.at(v_at, f.times(place, line)), step, g["v_far"])
                m_first = f.at(m_at, f.times(f.times(f.minus(begin, start), g["unit"]), line * v))
                with f.loop(0, panels) as panel:
                    u = f.at(u_at, f.times(panel.index, f.times(u_far, n * n)))
                    m_there = f.at(m_first, f.times(panel.index, m_panel))
                    with f.loop(0, n * n) as i:
                        place, count = now.having(i.index)
                        v_there = f.plus(f.times(i.index, g["v_far"]), f.times(place, line))
                        m_shift = f.plus(f.times(i.index, g["m_far"]), f.times(place, line * v))
                        f.run(
                            product, f.at(v_at, v_there), f.at(u, f.times(i.index, u_far)),
                            f.at(m_there, m_shift), count, blocks, step,
                            u_far, fresh,
                        )  # fmt: skip
        with f.loop(0, rounds) as r:
            begin, end = round_of(f, start, stop, rounds, r.index)
            m_first = f.at(m_at, f.times(f.times(f.minus(begin, start), g["unit"]), line * v))
            with Round(f, grid, g, begin, end).each() as (tile, place):
                shift = f.plus(f.times(f.times(tile.image, g["oh"]), out_row), f.times(f0, size))
                shift = f.plus(shift, f.plus(f.times(tile.y, out_row), f.times(tile.x, out_pixel)))
                for kind, is_kind in tile.kinds():
                    rows = f.least(f.minus(g["oh"], tile.y), kind.rows)
                    columns = f.least(f.minus(g["ow"], tile.x), kind.columns)
                    with f.when(is_kind):
                        f.run(
                            out_of[kind], f.at(m_first, f.times(place, line * v)), m_panel,
                            panels, g["m_far"], own_factor, own_bias,
                            f.at(g["out"], shift), f.at(g["addend"], shift),
                            out_row,
                            out_pixel, rows, columns, scratch,
                        )  # fmt: skip
    f.done()
    return name


@dataclass(frozen=True)
class Convolution(Layer):
    """out = [relu](data * weight [factor] + bias [+ addend]), or (`flipped`) the data gradient of one.

    `prologue` is applied to data first. weight: (f, c, 3, 3), or flipped (c, f, 3, 3). `parts`: input
    and output channels of a part, `groups` of units, `most` units in V. Unless `made` by items, the parts are
    all channels.
    """

    flipped: bool
    epilogue: Epilogue
    prologue: Prologue
    parts: tuple[int, int]
    groups: int
    most: int
    made: Made

    @property
    def v(self) -> int:
        """Vectors in a panel of outputs."""
        return vectors(self.parts[1])

    def places(self) -> dict[str, int]:
        """Offsets in one thread's scratch, and distances in it."""
        lanes = width()
        (cs, fs), line = self.parts, 4 * lanes
        group = -(-self.units // self.groups) * self.unit
        u = 4 * self.products * fs * (cs + 1)
        far = {"v_far": 4 * min(self.most * self.unit, group) * cs + line, "m_far": 4 * group * fs + line}
        at_zero = padded(self.v * lanes * self.itemsize)  # what is before it takes outputs that nobody wants
        zeros = max(self.grid.n * self.c * self.itemsize, 4 * fs)  # for a row of a tile, or for a bias
        at_u = at_zero + padded(zeros)
        at_v = at_u + (0 if self.made == Made.SHARED else padded(u))
        at_m = at_v + padded(self.products * far["v_far"])
        share = padded(at_m + self.products * far["m_far"], 4096) + 64
        return {**far, "at_zero": at_zero, "at_u": at_u, "at_v": at_v, "at_m": at_m, "share": share}

    def pieces(self) -> list[Piece]:
        u = 4 * self.products * self.f * (self.c + 1) if self.made == Made.SHARED else 0
        return [((u,), BYTE), ((self.threads * self.places()["share"],), BYTE)]

    def connect(
        self,
        data: Any,
        weight: Any,
        bias: Any,
        out: Any,
        work: Any,
        addend: Any = None,
        factor: Any = None,
        line: Sequence[Any] = (None, None),
    ) -> Run:
        """The call that computes `out`, which may be `addend`. `line`: factors and shifts of the prologue."""
        u, own = carve(work, self.pieces())
        keep = (data, weight, bias, out, work, addend, factor, *line)
        near, far = 4 * TAPS, 4 * TAPS * (self.f if self.flipped else self.c)
        order = {"lane": near, "step": far} if self.flipped else {"lane": far, "step": near}
        values = {
            **self.slots(), **self.places(), **order, "weight": address_of(weight),
            "backwards": int(self.flipped), "data": address_of(data), "u": address_of(u),
            "factor": address_of(factor), "bias": address_of(bias), "out": address_of(out),
            "addend": address_of(addend), "work": address_of(own), **dict(zip(LINE, map(address_of, line))),
            "cs": self.parts[0], "fs": self.parts[1], "groups": self.groups, "most": self.most,
            "has_bias": int(bias is not None), "made": int(self.made), "taken": 0, "finished": 0,
        }  # fmt: skip
        code, name = code_of(convolve_entry, self.grid, self.v, self.dtype, self.epilogue, self.prologue)
        return call(code, name, [values[s] for s in SLOTS], self.threads, keep)
