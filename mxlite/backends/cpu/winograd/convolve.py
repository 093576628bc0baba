"""A convolution as transforms and small products."""

from __future__ import annotations

from .product import rows_routine
from .routine import Program
from .tiles import gather_routine, input_routine, NBYTES, output_routine, round_of, scatter_routine, Source, Tile, whole_rounds

SLOTS = (
    "data", "u", "bias", "out", "work", "share", "tiles", "per_image", "per_row", "h", "w", "oh", "ow", "pad_y", "pad_x",
    "blocks", "panels", "most", "v_far", "u_far", "m_far", "has_bias", "at_out", "at_m", "at_v", "at_zero",
)  # fmt: skip


def convolve_entry(p: Program, m: int, v: int, dtype: str) -> str:
    """Every thread takes some tiles, `most` at a time: into V, times U panel by panel into M, and out."""
    n = m + 2
    name = f"convolve{m}x{v}_{dtype}"
    size = NBYTES[dtype]
    into, gather = input_routine(p, m, dtype), gather_routine(p, n, dtype)
    product = rows_routine(p, v)
    out_of, scatter = output_routine(p, m, v, dtype), scatter_routine(p, m, v, dtype)
    f = p.entry(name)
    g = {
        s: (f.pointer(k) if s in ("data", "u", "bias", "out", "work") else f.integer(k))
        for k, s in enumerate(SLOTS)
    }
    line = 4 * f.width
    scratch = f.at(g["work"], f.times(f.thread, g["share"]))
    sheet, v_at, m_at = f.at(scratch, g["at_out"]), f.at(scratch, g["at_v"]), f.at(scratch, g["at_m"])
    zero = f.at(scratch, g["at_zero"])
    panel_bytes = v * f.width * size
    with f.loop("0", g["panels"]) as loop:
        for j in range(v):
            f.write(f.const(0.0), f.at(zero, f.plus(f.times(loop.index, line * v), line * j)))
    has_bias = f.is_("ne", g["has_bias"], 0)
    bias = f.emit(f"select i1 {has_bias}, ptr {g['bias']}, ptr {zero}")
    in_pixel = f.times(g["blocks"], f.width * size)
    out_pixel = f.times(g["panels"], panel_bytes)
    out_row = f.times(out_pixel, g["ow"])
    u_panel = f.times(g["u_far"], n * n)

    first, last = f.share(g["tiles"])
    rounds = whole_rounds(f, first, last, g["most"])
    images = Source(f, g["data"], g["h"], g["w"], in_pixel, g["blocks"], sheet, dtype)
    with f.loop("0", rounds) as r:
        begin, end = round_of(f, first, last, rounds, r.index)
        t = f.minus(end, begin)
        step = f.times(t, line)
        with f.loop(begin, end) as k:
            q = Tile(f, k.index, m, g["per_image"], g["per_row"])
            to = f.at(v_at, f.times(f.minus(k.index, begin), line))
            y, x = f.minus(q.y, g["pad_y"]), f.minus(q.x, g["pad_x"])
            images.read(q.image, y, x, n, gather, into, to, step, g["v_far"])
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
                image = f.at(g["out"], f.times(f.times(q.image, g["oh"]), out_row))
                target = f.at(image, f.plus(f.times(q.y, out_row), f.times(q.x, out_pixel)))
                target = f.at(target, f.times(panel.index, panel_bytes))
                rows, columns = f.least(f.minus(g["oh"], q.y), m), f.least(f.minus(g["ow"], q.x), m)
                whole = f.is_("eq", f.plus(rows, columns), 2 * m)
                edge = f.emit(f"xor i1 {whole}, true")
                to = f.emit(f"select i1 {whole}, ptr {target}, ptr {sheet}")
                row = f.emit(f"select i1 {whole}, i64 {out_row}, i64 {m * panel_bytes}")
                column = f.emit(f"select i1 {whole}, i64 {out_pixel}, i64 {panel_bytes}")
                f.run(
                    out_of, ("ptr", f.at(m_at, f.times(f.minus(k.index, begin), line * v))), ("i64", g["m_far"]),
                    ("ptr", f.at(bias, f.times(panel.index, line * v))), ("ptr", to), ("i64", row), ("i64", column),
                )  # fmt: skip
                with f.when(edge):
                    f.run(
                        scatter, ("ptr", sheet), ("ptr", target), ("i64", rows), ("i64", columns), ("i64", out_row),
                        ("i64", out_pixel),
                    )  # fmt: skip
    f.done()
    return name
