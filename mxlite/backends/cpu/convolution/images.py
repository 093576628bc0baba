"""The sums of `ops/image_gradient.py`, as generated code.

Images have few channels: what one row of a filter reads lies side by side, in a few vectors. A thread has one
image at a time, padded and in float32, and for each row k of the filters and each filter a row of sums, which
stays in the first-level cache:

    sums[k, f, :]  +=  g[position, f] * image[row of position + k, column of position : ]

Over all positions of a row that is a product of matrices, one of which overlaps itself. Where there is one
position for each window of the pooling, it is a product of gathered rows, summed up in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....ops.conv_kernels import Geometry
from ....ops.pool_kernels import Windows
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiled import call, storable, usable, width
from ..onednn import Run
from ..onednn.primitive import address_of
from ..threads import num_threads
from ..winograd.product import outer_routine
from ..winograd.routine import code_of, Int, Program, Routine
from ..winograd.tiles import clear

_byte = np.dtype("uint8")

_POINTERS = ("data", "made", "chosen", "index", "gamma", "beta", "mean", "var", "table", "work")
_SLOTS = (
    *_POINTERS, "share", "at_row", "at_sums", "images", "h", "line", "nbytes", "at_image", "row", "down",
    "right", "oh", "ow", "filters", "rows_down", "rows_right", "rows_from",
)  # fmt: skip
"""line: numbers of a row of data; nbytes: of a row of the padded image, `row` rows of which are there; down,
right: bytes from one position to that below and beside it. Of windows: rows_down and rows_right likewise,
rows_from: bytes from the image to the first one's first position."""

MOST = 3  # vectors that a filter's row takes


class _Images:
    """What both have in common: the geometry `g` of the convolution, and sums for `extra` more filters."""

    entry: Callable[..., str]

    def __init__(self, g: Geometry, extra: int = 0) -> None:
        self.lanes = width() if usable() else 0
        if not self.lanes or g.dtype.name not in storable() or len(g.size) != 2 or g.groups != 1:
            raise LookupError
        self.vectors = -(-g.kernel[1] * g.c // self.lanes)
        if any(d != 1 for d in g.dilate) or self.vectors > MOST or 0 in (g.n, g.c, g.f, *g.size, *g.out):
            raise LookupError
        self.g, self.extra, self.threads = g, extra, num_threads()
        own, reached = ((g.size[1] + 2 * g.pad[1]) * g.c, (g.out[1] - 1) * g.stride[1] * g.c)
        wide = max(own, reached + self.vectors * self.lanes)
        self.row = 4 * (-(-wide // self.lanes) * self.lanes)  # bytes
        self.rows = g.size[0] + 2 * g.pad[0]

    @property
    def sums(self) -> Shape:
        """Of a thread; the last axis has room for whole vectors."""
        return (self.g.kernel[0], self.g.f + self.extra, self.vectors * self.lanes)

    @property
    def positions(self) -> int:
        """Positions of a row that are worked on together."""
        raise NotImplementedError

    def places(self) -> dict[str, int]:
        """Offsets in a thread's scratch: the image, a row of factors, sums."""
        at_row = self.rows * self.row + 4 * self.vectors * self.lanes
        at_sums = _whole(at_row + 4 * self.positions * self.g.f)
        return {
            "at_row": _whole(at_row),
            "at_sums": at_sums,
            "share": _whole(at_sums + 4 * prod(self.sums), 4096) + 64,
        }

    def piece(self) -> Piece:
        return ((self.threads * self.places()["share"],), _byte)

    def views(self, work: Any) -> tuple[Any, Any]:
        """Of the first thread's sums, where those of all are in the end: (F, C, *K), and (extra, C, *K)."""
        g, at = self.g, self.places()["at_sums"]
        found = work[at : at + 4 * prod(self.sums)].view(float32).reshape(self.sums)
        found = (
            found[..., : g.kernel[1] * g.c].reshape(*self.sums[:2], g.kernel[1], g.c).transpose(1, 3, 0, 2)
        )
        return found[: g.f], found[g.f :]

    def numbers(self) -> dict[str, int]:
        g = self.g
        return {
            **self.places(), "images": g.n, "h": g.size[0], "line": g.size[1] * g.c, "nbytes": self.row,
            "at_image": g.pad[0] * self.row + 4 * g.pad[1] * g.c, "row": self.rows,
            "down": g.stride[0] * self.row, "right": 4 * g.stride[1] * g.c,
            "oh": g.out[0], "ow": g.out[1], "filters": g.f,
        }  # fmt: skip

    def call(self, code: tuple[Any, str], arrays: dict[str, Any], more: dict[str, int]) -> Run:
        values = self.numbers() | {n: address_of(x) for n, x in arrays.items()} | more
        return call(code[0], code[1], [values.get(s, 0) for s in _SLOTS], self.threads, keep=arrays)


class PatchSums(_Images):
    """Sums of (made - mean) * patch and of patches."""

    name = "compiled patches"

    def __init__(self, g: Geometry) -> None:
        super().__init__(g, extra=1)
        self.pieces = [self.piece()]

    @property
    def positions(self) -> int:
        return self.g.out[1]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, made: Any, data: Any, mean: Any, sums: Any, patches: Any, work: Any) -> Run:
        (own,) = carve(work, self.pieces)
        code = code_of(_sums_entry, self.g.kernel[0], self.vectors, self.g.dtype.name)
        arrays = dict(data=data, made=made, mean=mean, table=np.ones(1, float32), work=own)
        run = self.call(code, arrays, {})
        by_filter, (alone,) = self.views(own)

        def sum_up() -> None:
            run()
            if sums is not None:
                np.copyto(sums, by_filter)
            if patches is not None:
                np.copyto(patches, alone)

        return sum_up


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
    def positions(self) -> int:
        return self.w.out[1]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(
        self, grad: Any, chosen: Any, index: Any, norm: Sequence[Any], data: Any, work: Any
    ) -> tuple[Run, Any]:
        """The call, and the view of its result, (F, C, *K), in `work`. norm: gamma, beta, mean and var."""
        (own,), w = carve(work, self.pieces), self.w
        down, right = self.g.stride[0] * self.row, 4 * self.g.stride[1] * self.g.c
        y, x = np.divmod(np.arange(prod(w.kernel) + 1), w.kernel[1])
        y[-1], x[-1] = w.pad  # no maximum: all are nan
        table = (y * down + x * right).astype(np.int64)
        code = code_of(_chosen_entry, self.g.kernel[0], self.vectors, self.g.dtype.name, self.relu)
        arrays = dict(
            data=data, made=grad, chosen=chosen, index=index, table=table, work=own,
            **dict(zip(("gamma", "beta", "mean", "var"), norm)),
        )  # fmt: skip
        more = {
            "oh": w.out[0], "ow": w.out[1], "rows_down": w.stride[0] * down,
            "rows_right": w.stride[1] * right, "rows_from": -w.pad[0] * down - w.pad[1] * right,
        }  # fmt: skip
        return self.call(code, arrays, more), self.views(own)[0]


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


def _sums_entry(p: Program, rows: int, vectors: int, dtype: str) -> str:
    """All positions, `rows` rows of a filter; one filter more has ones for factors."""
    product = p.borrow(outer_routine, vectors)
    f = p.entry("patch_sums")
    g, own, sums = _begin(f)
    far = 4 * vectors * f.width
    count = f.times(g["filters"], far)
    each = f.plus(count, far)
    factors = f.at(own, g["at_row"])
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
            here = f.at(own, f.times(y.index, g["down"]))
            step = f.times(g["filters"], 4)
            for k in range(rows):
                patch = f.at(here, f.times(g["nbytes"], k))
                to = f.at(sums, f.times(each, k))
                for a, s, number, a_step in (
                    (factors, to, g["filters"], step), (g["table"], f.at(to, count), 1, 0)
                ):  # fmt: skip
                    f.run(
                        product, ("ptr", a), ("ptr", patch), ("ptr", s), ("i64", number), ("i64", g["ow"]),
                        ("i64", a_step), ("i64", g["right"]), ("i64", 0),
                    )  # fmt: skip
    _join(f, g, f.times(f.over(each, 4), rows))
    f.done()
    return "patch_sums"


def _chosen_entry(p: Program, rows: int, vectors: int, dtype: str, relu: bool) -> str:
    """One position of each window."""
    f = p.entry("chosen_sums")
    g, own, sums = _begin(f)
    far = 4 * vectors * f.width
    each = f.times(g["filters"], far)
    factors = f.at(own, g["at_row"])
    together = max(1, (28 if f.width == 16 else 12) // vectors)  # rows whose sums fit in the registers
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
            here = f.at(own, f.plus(g["rows_from"], f.times(y.index, g["rows_down"])))
            for top in range(0, rows, together):
                some = range(top, min(top + together, rows))
                _gathered(f, g, here, factors, first, sums, each, some, vectors)
    _join(f, g, f.times(f.over(each, 4), rows))
    f.done()
    return "chosen_sums"


def _gathered(
    f: Routine,
    g: dict[str, str],
    here: str,
    factors: str,
    first: Int,
    sums: str,
    each: Int,
    rows: Sequence[int],
    vectors: int,
) -> None:
    """The positions of a row of windows: of every filter `rows` rows."""
    step = f.times(g["filters"], 4)
    lines = [f.times(g["nbytes"], k) for k in rows]
    with f.loop("0", g["filters"]) as filter_:
        own = f.at(sums, f.times(filter_.index, 4 * vectors * f.width))
        places = [f.at(f.at(own, f.times(each, k)), 4 * f.width * j) for k in rows for j in range(vectors)]
        numbers = f.at(g["index"], f.plus(first, filter_.index))
        factor = f.at(factors, f.times(filter_.index, 4))
        with f.loop("0", g["ow"], 1, [f.read(there) for there in places]) as x:
            byte = f.emit(f"load i8, ptr {f.at(numbers, f.times(x.index, g['filters']))}")
            number = f.emit(f"zext i8 {byte} to i64")
            away = f.emit(f"load i64, ptr {f.at(g['table'], f.times(number, 8))}, align 8")
            patch = f.at(here, f.plus(away, f.times(x.index, g["rows_right"])))
            d = f.repeated(f.at(factor, f.times(x.index, step)))
            read = [
                f.read(f.at(f.at(patch, line), 4 * f.width * j)) for line in lines for j in range(vectors)
            ]
            x.again(*(f.fma(d, a, s) for a, s in zip(read, x.values)))
        for there, value in zip(places, x.results):
            f.write(value, there)


def _whole(nbytes: int, to: int = 64) -> int:
    return -(-nbytes // to) * to
