"""Transform of weights into the domain of the products.

U: (panels, n n, K + 1, v L), G g Gt of every pair of channels: panels of v L output channels, K input
channels. The additional row keeps the products of one pair of channels from mapping to the same place in
the cache.
"""

from __future__ import annotations

from ..compiled import width
from ..compiled.codegen.routine import Int, Program, Routine
from .algebra import algorithm
from .linear import both_sides
from .taps import read_taps

_AHEAD = 4
"""Input channels whose kernels are prefetched: weights come from memory, in more streams than a
processor prefetches itself.
"""


def far_of(f: Routine, depth: Int, v: int) -> Int:
    """Bytes between the products of U for K = depth."""
    return f.times(f.plus(depth, 1), 4 * v * f.width)


def weight_routine(p: Program, m: int, v: int) -> str:
    """`(ptr weight, i64 lane, i64 step, i64 backwards, ptr u, i64 far, i64 panels, i64 first, i64 last)`: U
    of some panels and of the input channels [first, last).

    `lane`, `step`: bytes between output channels and between input channels of `weight`; the taps of one
    kernel are 9 numbers side by side, used in this order or `backwards`.
    """
    name = f"winograd_weight{m}x{v}x{width()}"
    matrix = algorithm(m).kernel
    n = m + 2
    f = p.routine(
        name, weight="ptr", lane="i64", step="i64", backwards="i64", u="ptr", far="i64", panels="i64",
        first="i64",
        last="i64",
    )  # fmt: skip
    line = 4 * f.width
    fars = [f.times(i, f.arg("far")) for i in range(n * n)]
    backwards = f.every_lane(f.is_("ne", f.arg("backwards"), 0))
    with f.loop(0, f.arg("panels")) as panel:
        source = f.at(f.arg("weight"), f.times(panel.index, f.times(f.arg("lane"), v * f.width)))
        target = f.at(f.arg("u"), f.times(panel.index, f.times(f.arg("far"), n * n)))
        with f.loop(f.arg("first"), f.arg("last")) as k:
            for j in range(v):
                base = f.at(
                    source, f.plus(f.times(k.index, f.arg("step")), f.times(f.arg("lane"), j * f.width))
                )
                to = f.at(target, f.plus(f.times(k.index, line * v), line * j))
                ahead = f.at(base, f.times(f.arg("step"), _AHEAD))
                for i in range(f.width):
                    kernel = f.at(ahead, f.times(f.arg("lane"), i))
                    f.prefetch(kernel)
                taps = read_taps(f, base, f.arg("lane"))
                taps = [f.select(backwards, b, a) for a, b in zip(taps, taps[::-1])]
                both_sides(
                    f,
                    matrix,
                    lambda r, c: taps[3 * r + c],
                    lambda r, c, value: f.write(value, f.at(to, fars[r * n + c])),
                )
    f.done()
    return name
