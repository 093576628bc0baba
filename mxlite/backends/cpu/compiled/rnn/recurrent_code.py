"""Code of recurrent layers in both directions, and the packing of their weights; see `recurrent.py`."""

from __future__ import annotations

import functools

from .....core.machine_code import native
from ..calls.team import load
from ..codegen import tile
from ..codegen.emitter import width
from ..codegen.ir import Value, zero
from ..codegen.routine import Int, Program, Routine
from ..matrix.transposition import transposed
from .recurrent import PACKED, panel, RecurrentForm, WEIGHT


@functools.lru_cache(maxsize=256)
def code(form: RecurrentForm, backward: bool) -> native.Code:
    """The code with two functions: `pack`, or `both` where nothing is packed; and `forward` or `backward`."""
    p = Program()
    if backward:
        from .recurrent_gradient import Gradient, pack_backward

        pack_backward(p, form)
        Gradient(p, form)
    else:
        from .recurrent_step import both, Forward

        if form.packs:
            _pack_forward(p, form)
        Forward(p, form)
        if not form.packs:
            both(p)
    return load(p)


def _pack_forward(p: Program, form: RecurrentForm) -> None:
    """pack(WEIGHT -> PACKED): weight (G*H, H) to panels (tiles, H, vectors of a tile), transposed."""
    f = p.entry("pack")
    h, lanes, shape = form.hidden, width(), panel(form)
    weight, packed = f.pointer(WEIGHT), f.pointer(PACKED)
    line = 4 * lanes * shape.tile
    whole, rest = divmod(h, shape.units)
    first, last = f.share(whole + bool(rest))

    def one(index: Int, left: int) -> None:
        """A panel of which `left` units are there."""
        target = f.at(packed, f.times(index, 4 * lanes * len(shape.vectors) * h))
        for j, (gate, unit) in enumerate(shape.vectors):
            rows = max(0, min(lanes, left - unit))
            source = f.at(weight, f.times(f.plus(gate * h + unit, f.times(index, shape.units)), 4 * h))
            into = f.at(target, j // shape.tile * line * h + 4 * lanes * (j % shape.tile))
            with f.loop(0, h // lanes) as loop:
                at = f.at(source, f.times(loop.index, 4 * lanes))
                _pack_block(f, at, f.at(into, f.times(loop.index, line * lanes)), h, line, rows, lanes)
            if h % lanes:
                done = h // lanes * lanes
                _pack_block(f, f.at(source, 4 * done), f.at(into, line * done), h, line, rows, h % lanes)

    with f.loop(first, f.least(last, whole)) as loop:
        one(loop.index, shape.units)
    if rest:
        with f.when(f.is_("eq", last, whole + 1)), f.loop(f.most(first, whole), last) as loop:
            one(loop.index, rest)
    f.done()


def _pack_block(f: Routine, source: Value, target: Value, h: int, line: int, rows: int, columns: int) -> None:
    """`rows` rows of `columns` numbers, transposed and padded with zeros."""
    lanes = f.width
    mask = tile.first(columns) if columns < lanes else None
    block = [f.load(f.at(source, 4 * h * k), 0, mask=mask) for k in range(rows)]
    turned = transposed(f, [f.as_int(x) for x in block] + [zero(f.ints)] * (lanes - rows))
    for k in range(columns):
        f.write(f.as_float(turned[k]), f.at(target, line * k))
