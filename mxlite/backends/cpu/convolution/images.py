"""The sums of `ops/image_gradient.py`, as generated code.

A thread has one image at a time, padded and in float32, and of one row of positions, or those that a row of
windows has, the patches: what the convolution reads for one position, side by side in whole vectors. Over all
positions of a row the sums are a product of matrices. Where there is one position for each window of the
pooling they are a product of gathered patches, summed up in registers, a few windows at a time, whose patches
stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....ops.conv_kernels import Geometry
from ....ops.pool_kernels import Windows
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiled import call, storable, usable, width
from ..compiled.column_sum import ColumnSum
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of
from ..threads import num_threads
from ..winograd.product import outer_routine
from ..winograd.routine import code_of, Int, Program, Routine
from ..winograd.tiles import clear
from .choice import by_weight
from .direct import part_of

_byte = np.dtype("uint8")

_POINTERS = ("data", "made", "chosen", "index", "gamma", "beta", "mean", "var", "table", "work")
_SLOTS = (
    *_POINTERS, "share", "at_patches", "at_factors", "at_sums", "images", "h", "line", "nbytes", "at_image",
    "row", "down", "right", "oh", "ow", "filters", "patch", "made_h", "made_w", "window_h", "step_h",
    "step_w", "above", "left",
)  # fmt: skip
"""line: numbers of a row of data; nbytes: of a row of the padded image, `row` rows of which are there; down,
right: bytes in it from one position to that below and beside it; patch: bytes of a patch; oh, ow: positions,
or windows of `window_h` rows, which start every step_h, step_w of made_h x made_w positions from (-above,
-left) on."""

MOST = 32  # vectors of a patch
WINDOWS = 8  # that are worked on together


class _Images:
    """What both have in common: the geometry `g` of the convolution, and sums for `extra` more filters."""

    def __init__(self, g: Geometry, extra: int = 0) -> None:
        self.lanes = width() if usable() else 0
        if not self.lanes or g.dtype.name not in storable() or len(g.size) != 2 or g.groups != 1:
            raise LookupError
        # A row of a patch is copied in whole vectors; what is beyond it the next row overwrites.
        side = g.kernel[1] * g.c
        self.wide = -(-side // self.lanes)
        self.vectors = -(-((g.kernel[0] - 1) * side) // self.lanes) + self.wide
        if any(d != 1 for d in g.dilate) or self.vectors > MOST or 0 in (g.n, g.c, *g.size, *g.out):
            raise LookupError
        self.g, self.extra, self.threads = g, extra, num_threads()
        own, reached = (g.size[1] + 2 * g.pad[1]) * g.c, (g.out[1] - 1) * g.stride[1] * g.c
        longest = max(own, reached + self.wide * self.lanes)
        self.row = 4 * (-(-longest // self.lanes) * self.lanes)  # bytes
        self.rows = g.size[0] + 2 * g.pad[0]

    @property
    def patch(self) -> int:
        """Numbers of a patch."""
        return self.vectors * self.lanes

    @property
    def sums(self) -> Shape:
        """Of a thread; the last axis has room for whole vectors."""
        return (self.g.f + self.extra, self.patch)

    @property
    def positions(self) -> tuple[int, int]:
        """Factors for each filter, and patches, that are there at a time."""
        raise NotImplementedError

    def places(self) -> dict[str, int]:
        """Offsets in a thread's scratch: the image, patches, factors, sums."""
        factors, patches = self.positions
        at_patches = _whole(self.rows * self.row + 4 * self.wide * self.lanes)
        at_factors = at_patches + _whole(4 * patches * self.patch)
        at_sums = at_factors + _whole(4 * factors * self.g.f)
        share = _whole(at_sums + 4 * prod(self.sums), 4096) + 64
        return {"at_patches": at_patches, "at_factors": at_factors, "at_sums": at_sums, "share": share}

    def piece(self) -> Piece:
        return ((self.threads * self.places()["share"],), _byte)

    def found(self, work: Any) -> Any:
        """The first thread's sums, where those of all are in the end."""
        at = self.places()["at_sums"]
        return work[at : at + 4 * prod(self.sums)].view(float32).reshape(self.sums)

    def by_weight(self, sums: Any) -> Any:
        """Sums by the axes of the weight: (F + extra, C, *K)."""
        g = self.g
        taps = sums[:, : prod(g.kernel) * g.c].reshape(-1, *g.kernel, g.c)
        return taps.transpose(0, 3, 1, 2)

    def numbers(self) -> dict[str, int]:
        g = self.g
        return {
            **self.places(), "images": g.n, "h": g.size[0], "line": g.size[1] * g.c, "nbytes": self.row,
            "at_image": g.pad[0] * self.row + 4 * g.pad[1] * g.c, "row": self.rows,
            "down": g.stride[0] * self.row, "right": 4 * g.stride[1] * g.c,
            "oh": g.out[0], "ow": g.out[1], "filters": g.f, "patch": 4 * self.patch,
            "made_h": g.out[0], "made_w": g.out[1],
        }  # fmt: skip

    def form(self) -> tuple[int, int, int, int, str]:
        """What code depends on: rows of a patch, their numbers and vectors, all vectors, the type."""
        g = self.g
        return g.kernel[0], g.kernel[1] * g.c, self.wide, self.vectors, g.dtype.name

    def call(self, code: tuple[Any, str], arrays: dict[str, Any], more: dict[str, int]) -> Run:
        values = self.numbers() | {n: address_of(x) for n, x in arrays.items()} | more
        return call(code[0], code[1], [values.get(s, 0) for s in _SLOTS], self.threads, keep=arrays)


class PatchSums(_Images):
    """Sums of (made - mean) * patch and of patches."""

    name = "compiled patches"

    def __init__(self, g: Geometry) -> None:
        super().__init__(g, extra=1)
        self.panel = 2 - self.vectors % 2  # vectors
        self.pieces = [(self.sums, float32), self.piece()]

    @property
    def positions(self) -> tuple[int, int]:
        return self.g.out[1], self.g.out[1]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, made: Any, data: Any, mean: Any, sums: Any, patches: Any, work: Any) -> Run:
        flat, own = carve(work, self.pieces)
        code = code_of(_sums_entry, *self.form())
        arrays = dict(data=data, made=made, mean=mean, table=np.ones(1, float32), work=own)
        run = self.call(code, arrays, {})
        # By panels of a few vectors, and in them by filters.
        panels = self.found(own).reshape(-1, self.sums[0], self.panel * self.lanes).transpose(1, 0, 2)
        rows, all_sums = flat.reshape(panels.shape), self.by_weight(flat)

        def sum_up() -> None:
            run()
            np.copyto(rows, panels)
            if sums is not None:
                np.copyto(sums, all_sums[:-1])
            if patches is not None:
                np.copyto(patches, all_sums[-1])

        return sum_up


class PatchSumsByProduct:
    """The same where the processor multiplies 16-bit numbers itself: sums of made * patch as the gradient in
    the weight with `made` for d_out, those of patches of the sum of all images. What is left has more
    rounding errors where the mean is many times the standard deviation, as the 16-bit numbers have.
    """

    def __init__(self, g: Geometry) -> None:
        if part_of(g).dtype != g.dtype or g.dtype == float32:
            raise LookupError
        self.way, self.shape = by_weight(g, float32, False), (g.f, g.c, *g.kernel)
        if self.way is None:
            raise LookupError
        self.name = f"{self.way.name}, compiled patches"
        self.columns = ColumnSum(g.n, g.c * prod(g.size), g.dtype, float32)
        self.alone = PatchSums(replace(g, n=1, f=0, dtype=float32))
        most = max(self.way.nbytes, self.columns.nbytes, self.alone.nbytes)
        self.pieces: list[Piece] = [
            (self.shape, float32), (self.shape, float32), ((g.c * prod(g.size),), float32), ((most,), _byte),
        ]  # fmt: skip

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, made: Any, data: Any, mean: Any, sums: Any, patches: Any, work: Any) -> Run:
        products, spare, image, rest = carve(work, self.pieces)
        sums = products if sums is None else sums
        patches = spare[0] if patches is None else patches
        calls = [
            self.way.connect(made, data, products, None, rest[: self.way.nbytes]),
            self.columns.connect(data, image, rest[: self.columns.nbytes]),
            self.alone.connect(image, image, image, None, patches, rest[: self.alone.nbytes]),
        ]
        column = mean.reshape(-1, 1, 1, 1)

        def center() -> None:
            np.multiply(column, patches, out=spare)
            np.subtract(products, spare, out=sums)

        return in_turn([*calls, center])


class ChosenSums(_Images):
    """Sums of gamma * var * d * patch, d the gradient `grad` in what pooling with windows `w` has `chosen`; 0
    where `relu` and the norm of that is not above 0.
    """

    name = "compiled patches of maxima"

    def __init__(self, g: Geometry, w: Windows, relu: bool) -> None:
        super().__init__(g)
        last = [(o - 1) * s for o, s in zip(w.out, w.stride)]
        if len(w.out) != 2 or prod(w.kernel) >= 255 or any(p >= n for p, n in zip(last, g.out)):
            raise LookupError
        self.w, self.relu = w, relu
        self.pieces = [self.piece()]

    @property
    def positions(self) -> tuple[int, int]:
        return self.w.out[1], self.w.kernel[0] * self.g.out[1]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(
        self, grad: Any, chosen: Any, index: Any, norm: Sequence[Any], data: Any, work: Any
    ) -> tuple[Run, Any]:
        """The call, and the view of its result, (F, C, *K), in `work`. norm: gamma, beta, mean and var."""
        (own,), w = carve(work, self.pieces), self.w
        y, x = np.divmod(np.arange(prod(w.kernel) + 1), w.kernel[1])
        y[-1], x[-1] = w.pad  # no maximum: all are nan
        table = ((y * self.g.out[1] + x) * 4 * self.patch).astype(np.int64)
        code = code_of(_chosen_entry, *self.form(), self.relu)
        arrays = dict(
            data=data, made=grad, chosen=chosen, index=index, table=table, work=own,
            **dict(zip(("gamma", "beta", "mean", "var"), norm)),
        )  # fmt: skip
        more = {
            "oh": w.out[0], "ow": w.out[1], "window_h": w.kernel[0], "step_h": w.stride[0],
            "step_w": w.stride[1], "above": w.pad[0], "left": w.pad[1],
        }  # fmt: skip
        return self.call(code, arrays, more), self.by_weight(self.found(own))


def _begin(f: Routine) -> tuple[dict[str, str], str, str]:
    """The slots; this thread's scratch, all zeros; its sums."""
    g = {s: (f.pointer(k) if s in _POINTERS else f.integer(k)) for k, s in enumerate(_SLOTS)}
    own = f.at(g["work"], f.times(f.thread, g["share"]))
    clear(f, own, f.minus(g["share"], 64))
    return g, own, f.at(own, g["at_sums"])


def _pad(f: Routine, g: dict[str, str], own: str, image: str, dtype: str) -> None:
    """The image into the padded one."""
    first = f.times(f.times(image, g["h"]), g["line"])
    with f.loop("0", g["h"]) as y:
        source = f.plus(first, f.times(y.index, g["line"]))
        target = f.at(f.at(own, g["at_image"]), f.times(y.index, g["nbytes"]))

        def move(i: str, mask: str | None) -> None:
            f.store(f.load(g["data"], str(f.plus(source, i)), dtype, mask=mask), target, i, mask=mask)

        f.sweep("0", g["line"], move)


def _join(f: Routine, g: dict[str, str], numbers: Int) -> None:
    """The sums of all threads, in those of the first."""
    f.meet()
    with f.when(f.is_("eq", f.thread, 0)):
        first = f.at(g["work"], g["at_sums"])

        def add(i: str, mask: str | None) -> None:
            with f.loop("1", f.threads, 1, [f.load(first, i, mask=mask)]) as other:
                there = f.at(first, f.times(other.index, g["share"]))
                other.again(f.add(other.values[0], f.load(there, i, mask=mask)))
            f.store(other.results[0], first, i, mask=mask)

        f.sweep("0", str(numbers), add)


def _read_patches(
    f: Routine, g: dict[str, str], own: str, y: Int, to: str, form: tuple[int, int, int]
) -> None:
    """The patches of a row of positions of the image."""
    rows, numbers, wide = form
    here = f.at(own, f.times(y, g["down"]))
    with f.loop("0", g["made_w"]) as x:
        source = f.at(here, f.times(x.index, g["right"]))
        target = f.at(to, f.times(x.index, g["patch"]))
        for k in range(rows):
            line, there = f.at(source, f.times(g["nbytes"], k)), f.at(target, 4 * numbers * k)
            for value, at in [
                (f.read(f.at(line, 4 * f.width * j)), f.at(there, 4 * f.width * j)) for j in range(wide)
            ]:
                f.write(value, at)


def _sums_entry(p: Program, rows: int, numbers: int, wide: int, vectors: int, dtype: str) -> str:
    """All positions; one filter more has ones for factors."""
    v = 2 - vectors % 2
    product = p.borrow(outer_routine, v)
    f = p.entry("patch_sums")
    g, own, sums = _begin(f)
    far = 4 * v * f.width
    count = f.times(g["filters"], far)
    each = f.plus(count, far)
    factors, patches = f.at(own, g["at_factors"]), f.at(own, g["at_patches"])
    begin, end = f.share(g["images"])
    with f.loop(begin, end) as image:
        _pad(f, g, own, image.index, dtype)
        with f.loop("0", g["oh"]) as y:
            line = f.plus(f.times(image.index, g["oh"]), y.index)
            with f.loop("0", g["ow"]) as x:
                source = f.times(f.plus(f.times(line, g["ow"]), x.index), g["filters"])
                target = f.at(factors, f.times(f.times(x.index, g["filters"]), 4))

                def center(i: str, mask: str | None) -> None:
                    made = f.load(g["made"], str(f.plus(source, i)), dtype, mask=mask)
                    f.store(f.sub(made, f.load(g["mean"], i, mask=mask)), target, i, mask=mask)

                f.sweep("0", g["filters"], center)
            _read_patches(f, g, own, y.index, patches, (rows, numbers, wide))
            step = f.times(g["filters"], 4)
            with f.loop("0", str(vectors // v)) as panel:
                patch = f.at(patches, f.times(panel.index, far))
                to = f.at(sums, f.times(panel.index, each))
                for a, s, number, a_step in (
                    (factors, to, g["filters"], step), (g["table"], f.at(to, count), 1, 0)
                ):  # fmt: skip
                    f.run(
                        product, ("ptr", a), ("ptr", patch), ("ptr", s), ("i64", number), ("i64", g["ow"]),
                        ("i64", a_step), ("i64", g["patch"]), ("i64", 0),
                    )  # fmt: skip
    _join(f, g, f.times(f.over(each, 4), vectors // v))
    f.done()
    return "patch_sums"


def _chosen_entry(
    p: Program, rows: int, numbers: int, wide: int, vectors: int, dtype: str, relu: bool
) -> str:
    """One position of each window."""
    f = p.entry("chosen_sums")
    g, own, sums = _begin(f)
    factors, patches = f.at(own, g["at_factors"]), f.at(own, g["at_patches"])
    begin, end = f.share(g["images"])
    with f.loop(begin, end) as image:
        _pad(f, g, own, image.index, dtype)
        with f.loop("0", g["oh"]) as y:
            line = f.plus(f.times(image.index, g["oh"]), y.index)
            first = f.times(f.times(line, g["ow"]), g["filters"])
            with f.loop("0", g["ow"]) as x:
                at = f.times(x.index, g["filters"])
                source, target = f.plus(first, at), f.at(factors, f.times(at, 4))

                def rectified(i: str, mask: str | None) -> None:
                    i_there = str(f.plus(source, i))
                    gamma, beta, mean, var = (
                        f.load(g[n], i, mask=mask) for n in ("gamma", "beta", "mean", "var")
                    )
                    scale = f.mul(var, gamma)
                    d = f.load(g["made"], i_there, dtype, mask=mask)
                    if relu:  # by the same numbers as the norm
                        chosen = f.load(g["chosen"], i_there, dtype, mask=mask)
                        seen = f.fma(chosen, scale, f.fma(f.neg(mean), scale, beta))
                        d = f.select(f.compare("ogt", seen, f.const(0.0)), d, f.const(0.0))
                    f.store(f.mul(d, scale), target, i, mask=mask)

                f.sweep("0", g["filters"], rectified)
            top = f.minus(f.times(y.index, g["step_h"]), g["above"])
            with f.loop("0", g["window_h"]) as k:
                row = f.plus(top, k.index)
                with f.when(f.is_("ult", row, g["made_h"])):
                    to = f.at(patches, f.times(f.times(k.index, g["made_w"]), g["patch"]))
                    _read_patches(f, g, own, row, to, (rows, numbers, wide))
            with f.loop("0", g["ow"], WINDOWS) as some:
                last = f.least(f.plus(some.index, WINDOWS), g["ow"])
                _gathered(f, g, (patches, factors, sums), first, (some.index, last), vectors)
    _join(f, g, f.over(f.times(g["filters"], g["patch"]), 4))
    f.done()
    return "chosen_sums"


def _gathered(
    f: Routine,
    g: dict[str, str],
    at: tuple[str, str, str],
    first: Int,
    windows: tuple[Int, Int],
    vectors: int,
) -> None:
    """Of every filter the sums over the windows [begin, end) of a row."""
    patches, factors, sums = at
    together = 28 if f.width == 16 else 12  # sums that fit in the registers
    step = f.times(g["filters"], 4)
    begin, end = (str(w) for w in windows)
    with f.loop("0", g["filters"]) as filter_:
        own = f.at(sums, f.times(filter_.index, g["patch"]))
        numbers = f.at(g["index"], f.plus(first, filter_.index))
        factor = f.at(factors, f.times(filter_.index, 4))
        for start in range(0, vectors, together):
            away = [4 * f.width * j for j in range(start, min(start + together, vectors))]
            places = [f.at(own, j) for j in away]
            with f.loop(begin, end, 1, [f.read(there) for there in places]) as x:
                byte = f.emit(f"load i8, ptr {f.at(numbers, f.times(x.index, g['filters']))}")
                number = f.emit(f"zext i8 {byte} to i64")
                shift = f.emit(f"load i64, ptr {f.at(g['table'], f.times(number, 8))}, align 8")
                left = f.minus(f.times(x.index, g["step_w"]), g["left"])
                patch = f.at(patches, f.plus(shift, f.times(left, g["patch"])))
                d = f.repeated(f.at(factor, f.times(x.index, step)))
                x.again(*(f.fma(d, f.read(f.at(patch, j)), s) for j, s in zip(away, x.values)))
            for there, value in zip(places, x.results):
                f.write(value, there)


def _whole(nbytes: int, to: int = 64) -> int:
    return -(-nbytes // to) * to
