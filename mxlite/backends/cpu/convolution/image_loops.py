"""Generated loops over images, used by `images.py`.

A thread has one image at a time, padded and in float32, and for one row of positions, or of
windows, the patches: the inputs of the convolution for each position, contiguous in whole vectors. Over all
positions of a row the sums are a product of matrices. If there is one position for each window of the
pooling they are a product of gathered patches, summed up in registers, a few windows at a time, whose patches
stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..compiled.codegen.ir import I8, I64, Value
from ..compiled.codegen.routine import Int, Program, Routine
from ..winograd.product import outer_routine
from ..winograd.tiles import clear

_POINTERS = ("data", "made", "chosen", "index", "gamma", "beta", "mean", "var", "table", "work")
SLOTS = (
    *_POINTERS, "share", "at_patches", "at_factors", "at_sums", "images", "h", "line", "nbytes", "at_image",
    "row", "down", "right", "oh", "ow", "filters", "patch", "made_h", "made_w", "window_h", "step_h",
    "step_w", "above", "left",
)  # fmt: skip
"""line: numbers of a row of data; nbytes: of a row of the padded image, `row` rows of which are stored; down,
right: bytes in it from one position to that below and beside it; patch: bytes of a patch; oh, ow: positions,
or windows of `window_h` rows, which start every step_h, step_w of made_h x made_w positions from (-above,
-left) on."""

WINDOWS = 8  # processed together


def _begin(f: Routine) -> tuple[dict[str, Value], Value, Value]:
    """Emit the slots; this thread's scratch, all zeros; its sums."""
    g = {s: (f.pointer(k) if s in _POINTERS else f.integer(k)) for k, s in enumerate(SLOTS)}
    own = f.at(g["work"], f.times(f.thread, g["share"]))
    clear(f, own, f.minus(g["share"], 64))
    return g, own, f.at(own, g["at_sums"])


def _pad(f: Routine, g: dict[str, Value], own: Value, image: Value, dtype: str) -> None:
    """Emit the copy of the image into the padded one."""
    first = f.times(f.times(image, g["h"]), g["line"])
    with f.loop(0, g["h"]) as y:
        source = f.plus(first, f.times(y.index, g["line"]))
        target = f.at(f.at(own, g["at_image"]), f.times(y.index, g["nbytes"]))

        def move(i: Value, mask: Value | None) -> None:
            f.store(f.load(g["data"], f.plus(source, i), dtype, mask=mask), target, i, mask=mask)

        f.sweep(0, g["line"], move)


def _join(f: Routine, g: dict[str, Value], numbers: Int) -> None:
    """Emit the summation over all threads, into the sums of the first."""
    f.meet()
    with f.when(f.is_("eq", f.thread, 0)):
        first = f.at(g["work"], g["at_sums"])

        def add(i: Value, mask: Value | None) -> None:
            with f.loop(1, f.threads, 1, [f.load(first, i, mask=mask)]) as other:
                there = f.at(first, f.times(other.index, g["share"]))
                other.again(f.add(other.values[0], f.load(there, i, mask=mask)))
            f.store(other.results[0], first, i, mask=mask)

        f.sweep(0, numbers, add)


def _read_patches(
    f: Routine, g: dict[str, Value], own: Value, y: Int, to: Value, form: tuple[int, int, int]
) -> None:
    """Emit the gathering of patches for a row of positions of the image."""
    rows, numbers, wide = form
    here = f.at(own, f.times(y, g["down"]))
    with f.loop(0, g["made_w"]) as x:
        source = f.at(here, f.times(x.index, g["right"]))
        target = f.at(to, f.times(x.index, g["patch"]))
        for k in range(rows):
            line, there = f.at(source, f.times(g["nbytes"], k)), f.at(target, 4 * numbers * k)
            for value, at in [
                (f.read(f.at(line, 4 * f.width * j)), f.at(there, 4 * f.width * j)) for j in range(wide)
            ]:
                f.write(value, at)


@contextmanager
def _each_row(
    f: Routine,
    g: dict[str, Value],
    own: Value,
    dtype: str,
    factor: Callable[[Value, Value, Value | None], Value],
) -> Iterator[tuple[Value, Int]]:
    """Loop over the rows of positions, or windows, of this thread's images. In its body the padded image
    exists, and the row's factors, `factor(filter, number, mask)` of the filter and the number of an element.

    It yields the row in its image, and the number of its first element.
    """
    begin, end = f.share(g["images"])
    with f.loop(begin, end) as image:
        _pad(f, g, own, image.index, dtype)
        with f.loop(0, g["oh"]) as y:
            line = f.plus(f.times(image.index, g["oh"]), y.index)
            first = f.times(f.times(line, g["ow"]), g["filters"])
            with f.loop(0, g["ow"]) as x:
                at = f.times(x.index, g["filters"])
                source = f.plus(first, at)
                target = f.at(f.at(own, g["at_factors"]), f.times(at, 4))

                def make(i: Value, mask: Value | None) -> None:
                    f.store(factor(i, (f.plus(source, i)), mask), target, i, mask=mask)

                f.sweep(0, g["filters"], make)
            yield y.index, first


def sums_entry(p: Program, rows: int, numbers: int, wide: int, vectors: int, dtype: str) -> str:
    """Entry for all positions; an additional filter has ones for factors."""
    v = 2 - vectors % 2
    product = p.borrow(outer_routine, v)
    f = p.entry("patch_sums")
    g, own, sums = _begin(f)
    far = 4 * v * f.width
    count = f.times(g["filters"], far)
    each = f.plus(count, far)
    factors, patches = f.at(own, g["at_factors"]), f.at(own, g["at_patches"])

    def centered(i: Value, number: Value, mask: Value | None) -> Value:
        return f.sub(f.load(g["made"], number, dtype, mask=mask), f.load(g["mean"], i, mask=mask))

    with _each_row(f, g, own, dtype, centered) as (y, _):
        _read_patches(f, g, own, y, patches, (rows, numbers, wide))
        step = f.times(g["filters"], 4)
        with f.loop(0, vectors // v) as panel:
            patch = f.at(patches, f.times(panel.index, far))
            to = f.at(sums, f.times(panel.index, each))
            for a, s, many, a_step in (
                (factors, to, g["filters"], step), (g["table"], f.at(to, count), 1, 0)
            ):  # fmt: skip
                f.run(product, a, patch, s, many, g["ow"], a_step, g["patch"], 0)
    _join(f, g, f.times(f.over(each, 4), vectors // v))
    f.done()
    return "patch_sums"


def chosen_entry(p: Program, rows: int, numbers: int, wide: int, vectors: int, dtype: str, relu: bool) -> str:
    """Entry for one position of each window."""
    f = p.entry("chosen_sums")
    g, own, sums = _begin(f)
    factors, patches = f.at(own, g["at_factors"]), f.at(own, g["at_patches"])

    def rectified(i: Value, number: Value, mask: Value | None) -> Value:
        gamma, beta, mean, var = (f.load(g[n], i, mask=mask) for n in ("gamma", "beta", "mean", "var"))
        scale = f.mul(var, gamma)
        d = f.load(g["made"], number, dtype, mask=mask)
        if relu:  # by the same arithmetic as the norm
            chosen = f.load(g["chosen"], number, dtype, mask=mask)
            seen = f.fma(chosen, scale, f.fma(f.neg(mean), scale, beta))
            d = f.select(f.compare("ugt", seen, f.const(0.0)), d, f.const(0.0))
        return f.mul(d, scale)

    with _each_row(f, g, own, dtype, rectified) as (y, first):
        top = f.minus(f.times(y, g["step_h"]), g["above"])
        with f.loop(0, g["window_h"]) as k:
            row = f.plus(top, k.index)
            with f.when(f.is_("ult", row, g["made_h"])):
                to = f.at(patches, f.times(f.times(k.index, g["made_w"]), g["patch"]))
                _read_patches(f, g, own, row, to, (rows, numbers, wide))
        with f.loop(0, g["ow"], WINDOWS) as some:
            last = f.least(f.plus(some.index, WINDOWS), g["ow"])
            _gathered(f, g, (patches, factors, sums), first, (some.index, last), vectors)
    _join(f, g, f.over(f.times(g["filters"], g["patch"]), 4))
    f.done()
    return "chosen_sums"


def _gathered(
    f: Routine,
    g: dict[str, Value],
    at: tuple[Value, Value, Value],
    first: Int,
    windows: tuple[Int, Int],
    vectors: int,
) -> None:
    """Emit, for every filter, the sums over the windows [begin, end) of a row."""
    patches, factors, sums = at
    together = 28 if f.width == 16 else 12  # sums that fit in the registers
    step = f.times(g["filters"], 4)
    begin, end = windows
    with f.loop(0, g["filters"]) as filter_:
        own = f.at(sums, f.times(filter_.index, g["patch"]))
        numbers = f.at(g["index"], f.plus(first, filter_.index))
        factor = f.at(factors, f.times(filter_.index, 4))
        for start in range(0, vectors, together):
            away = [4 * f.width * j for j in range(start, min(start + together, vectors))]
            places = [f.at(own, j) for j in away]
            with f.loop(begin, end, 1, [f.read(there) for there in places]) as x:
                byte = f.load_at(I8, f.at(numbers, f.times(x.index, g["filters"])))
                number = f.cast("zext", byte, I64)
                shift = f.load_at(I64, f.at(g["table"], f.times(number, 8)), 8)
                left = f.minus(f.times(x.index, g["step_w"]), g["left"])
                patch = f.at(patches, f.plus(shift, f.times(left, g["patch"])))
                d = f.repeated(f.at(factor, f.times(x.index, step)))
                x.again(*(f.fma(d, f.read(f.at(patch, j)), s) for j, s in zip(away, x.values)))
            for there, value in zip(places, x.results):
                f.write(value, there)
