"""A convolution as transforms and small products."""

from __future__ import annotations

from .product import rows_routine
from .routine import Program
from .tiles import (
    clear,
    Epilogue,
    input_routines,
    NBYTES,
    output_routine,
    round_of,
    Source,
    Tile,
    whole_rounds,
)

SLOTS = (
    "data", "u", "bias", "out", "addend", "work", "share", "tiles", "per_image", "per_row", "h", "w", "oh", "ow",
    "pad_y", "pad_x", "blocks", "panels", "most", "v_far", "u_far", "m_far", "has_bias", "at_m", "at_v", "at_zero",
)  # fmt: skip


def convolve_entry(p: Program, m: int, v: int, dtype: str, epilogue: Epilogue) -> str:
    """Every thread takes some tiles, `most` at a time: into V, times U panel by panel into M, and out.

    V: (n n, C / L, T, L), M: (n n, T, v L).
    """
    n = m + 2
    name = f"convolve{m}x{v}_{dtype}"
    into = input_routines(p, m, dtype)
    product = rows_routine(p, v)
    out_of = output_routine(p, m, v, dtype, epilogue)
    f = p.entry(name)
    g = {s: (f.pointer(k) if k < 6 else f.integer(k)) for k, s in enumerate(SLOTS)}
    line = 4 * f.width
    scratch = f.at(g["work"], f.times(f.thread, g["share"]))
    v_at, m_at, zeros = f.at(scratch, g["at_v"]), f.at(scratch, g["at_m"]), f.at(scratch, g["at_zero"])
    panel_bytes = v * f.width * NBYTES[dtype]
    clear(f, zeros, f.minus(g["at_m"], g["at_zero"]))
    has_bias = f.is_("ne", g["has_bias"], 0)
    bias = f.emit(f"select i1 {has_bias}, ptr {g['bias']}, ptr {zeros}")
    in_pixel = f.times(g["blocks"], f.width * NBYTES[dtype])
    out_pixel = f.times(g["panels"], panel_bytes)
    out_row = f.times(out_pixel, g["ow"])
    u_panel = f.times(g["u_far"], n * n)
    images = Source(f, into, g["data"], g["h"], g["w"], in_pixel, g["blocks"], zeros)

    first, last = f.share(g["tiles"])
    rounds = whole_rounds(f, first, last, g["most"])
    with f.loop("0", rounds) as r:
        begin, end = round_of(f, first, last, rounds, r.index)
        t = f.minus(end, begin)
        step = f.times(t, line)
        with f.loop(begin, end) as k:
            q = Tile(f, k.index, m, g["per_image"], g["per_row"])
            to = f.at(v_at, f.times(f.minus(k.index, begin), line))
            images.read(q.image, f.minus(q.y, g["pad_y"]), f.minus(q.x, g["pad_x"]), to, step, g["v_far"])
        with f.loop("0", g["panels"]) as panel:
            u = f.at(g["u"], f.times(panel.index, u_panel))
            with f.loop("0", str(n * n)) as i:
                f.run(
                    product, ("ptr", f.at(v_at, f.times(i.index, g["v_far"]))),
                    ("ptr", f.at(u, f.times(i.index, g["u_far"]))), ("ptr", f.at(m_at, f.times(i.index, g["m_far"]))),
                    ("i64", t), ("i64", g["blocks"]), ("i64", step), ("i64", g["u_far"]),
                )  # fmt: skip
            with f.loop(begin, end) as k:
                q = Tile(f, k.index, m, g["per_image"], g["per_row"])
                shift = f.plus(f.times(f.times(q.image, g["oh"]), out_row), f.times(panel.index, panel_bytes))
                shift = f.plus(shift, f.plus(f.times(q.y, out_row), f.times(q.x, out_pixel)))
                rows, columns = f.least(f.minus(g["oh"], q.y), m), f.least(f.minus(g["ow"], q.x), m)
                f.run(
                    out_of, ("ptr", f.at(m_at, f.times(f.minus(k.index, begin), line * v))), ("i64", g["m_far"]),
                    ("ptr", f.at(bias, f.times(panel.index, line * v))), ("ptr", f.at(g["out"], shift)),
                    ("ptr", f.at(g["addend"], shift)), ("i64", out_row), ("i64", out_pixel), ("i64", rows),
                    ("i64", columns), ("ptr", scratch),
                )  # fmt: skip
    f.done()
    return name
