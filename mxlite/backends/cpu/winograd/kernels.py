"""Weights into the domain of the products.

U: (panels, n n, K, v L), G g Gt of every pair of channels: panels of v L output channels, K input channels.
"""

from __future__ import annotations

from .algebra import algorithm
from .linear import both_sides
from .routine import Program


def weight_entry(p: Program, m: int, v: int) -> str:
    """Slots: weight, U, panels, K, bytes between lanes, between steps of K, between taps, between products.

    All the taps of one kernel are 9 numbers side by side; `weight` points to the first as it is used.
    """
    name = f"weight{m}x{v}"
    matrix = algorithm(m).kernel
    n = m + 2
    f = p.entry(name)
    weight, u = f.pointer(0), f.pointer(1)
    panels, depth, lane, step, tap, far = (f.integer(k) for k in range(2, 8))
    line = 4 * f.width
    lane32 = f.emit(f"trunc i64 {lane} to i32")
    one = f.emit(f"insertelement {f.ints} poison, i32 {lane32}, i32 0")
    every = f.emit(f"shufflevector {f.ints} {one}, {f.ints} poison, {f.ints} zeroinitializer")
    iota = f"<{', '.join(f'i32 {k}' for k in range(f.width))}>"
    indices = f.emit(f"mul {f.ints} {every}, {iota}")
    first, last = f.share(f.times(panels, depth))
    taps = [f.times(k, tap) for k in range(9)]
    with f.loop(first, last) as loop:
        panel, k = f.over(loop.index, depth), f.rest(loop.index, depth)
        source = f.at(weight, f.plus(f.times(panel, f.times(lane, v * f.width)), f.times(k, step)))
        target = f.at(u, f.plus(f.times(panel, f.times(far, n * n)), f.times(k, line * v)))
        for j in range(v):
            base = f.at(source, f.times(lane, j * f.width))

            def load(r: int, c: int, base: str = base) -> str:
                at = f.at(base, taps[3 * r + c])
                many = f.emit(f"getelementptr i8, ptr {at}, {f.ints} {indices}")
                return f.call(
                    f.vector,
                    f"llvm.masked.gather.v{f.width}f32.v{f.width}p0",
                    (f"<{f.width} x ptr>", many),
                    ("i32", "4"),
                    (f.bits, "splat (i1 true)"),
                    (f.vector, "zeroinitializer"),
                )

            loaded = {(r, c): load(r, c) for r in range(3) for c in range(3)}
            both_sides(
                f,
                matrix,
                lambda r, c: loaded[r, c],
                lambda i, j2, value, j=j: f.write(
                    value, f.at(target, f.plus(f.times(i * n + j2, far), line * j))
                ),
            )
    f.done()
    return name
