"""Columns of a convolution's windows, some rows of the output at a time, and the positions of taps in data.

Along one axis, taps less than a stride apart lie at different positions for different windows, so a block
of them is added in one call: 2 of 32 taps for a window of 64 with stride 32. A window with one position is
one block. To copy, all taps of windows that lie within the data are one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product as every
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ....core.dtype import float32
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ....ops.scratch import Piece, scratch_bytes
from ..onednn import bind, memory, Primitive, reorder, Run
from ..onednn.constants import DST, SRC
from ..onednn.product import Layout, Product, product
from .shapes import weight_memory

COLUMNS = 4 << 20
"""Bytes of columns at a time, about: they stay near the caches. Small calls have half as many bytes
as their larger array: a plan finds little room for more. But not fewer than LEAST_COLUMNS: each
part takes calls of its own."""
LEAST_COLUMNS = 128 << 10
MOST_COLUMNS = 8 * COLUMNS
"""Bytes of columns of one row of the output, beyond which direct kernels are used."""

_byte = np.dtype("uint8")


class TapBlock(NamedTuple):
    """Taps [first, last) of the windows [start, stop) of one axis; all lie within the data."""

    first: int
    last: int
    start: int
    stop: int


class ColumnsPart(NamedTuple):
    """Samples [n0, n1) and rows [o0, o1) of the output's first axis that are processed together."""

    n0: int
    n1: int
    o0: int
    o1: int


def blocks(
    size: int, out: int, kernel: int, stride: int, pad: int, start: int = 0, at_once: bool = False
) -> Iterator[TapBlock]:
    """The taps of one axis that lie in the data, for windows [start, start + out), each once. `at_once`: also
    taps that lie at the same position for different windows.
    """
    width = kernel if out == 1 or at_once else stride
    for first in range(0, kernel, width):
        last = min(kernel, first + width)
        run = None  # windows for which all these taps are in the data
        for o in range(start, start + out):
            low, high = max(first, pad - o * stride), min(last, size + pad - o * stride)
            if low == first and high == last:
                run = o if run is None else run
                continue
            if run is not None:
                yield TapBlock(first, last, run, o)
                run = None
            if low < high:
                yield TapBlock(low, high, o, o + 1)
        if run is not None:
            yield TapBlock(first, last, run, start + out)


class Columns:
    """Base of the three directions: rows of columns that exist at a time, and positions of their taps.

    Raises LookupError if there is no good product.
    """

    bias = False  # True if the product adds one

    def __init__(self, g: Geometry, weight: DType) -> None:
        if g.groups != 1 or g.dtype != float32 or weight != float32 or set(g.dilate) != {1}:
            raise LookupError
        self.g, self.taps = g, prod(g.kernel)
        self.width = self.taps * g.c
        row = prod(g.out[1:]) * self.width * 4
        if row > MOST_COLUMNS:
            raise LookupError
        largest = g.n * max(prod(g.size) * g.c, prod(g.out) * g.f) * 4
        most = min(COLUMNS, max(LEAST_COLUMNS, largest // 2))
        rows = max(1, most // row)  # of the first axis of the output
        self.samples, self.rows = (max(1, min(g.n, rows // g.out[0])), g.out[0])
        if rows < g.out[0]:
            self.samples, self.rows = 1, rows
        self.products = {key: self._product(*key) for key in self._kinds()}
        self.columns = max(n for n, _ in self.products) * self.width
        # With fewer rows than filters, transposing the columns is cheaper than transposing the weight.
        self.by_channel = g.n * prod(g.out) <= g.f
        self.plain = weight_memory(g, weight)
        axes = (0, *range(2, 2 + len(g.kernel)), 1)
        self.turned = memory((g.f, g.c, *g.kernel), weight, axes)
        self.turn = self._turn() if g.c > 1 and self.taps > 1 and not self.by_channel else None
        self.name = f"{next(iter(self.products.values())).name}, by columns"

    def _layouts(self, n: int) -> tuple[Layout, Layout, Layout]:
        """Factors and result of the product of `n` rows."""
        raise NotImplementedError

    def _product(self, n: int, adds: bool) -> Product:
        made: Product | None = product(*self._layouts(n), self.bias, 1.0, float(adds))
        if made is None:
            raise LookupError
        return made

    def _turn(self) -> Primitive:
        """Reorder from a weight in the user's layout to the columns' order."""
        return reorder(self.plain, self.turned)

    def _adds(self, part: ColumnsPart) -> bool:
        """True if this part's product is accumulated."""
        return False

    def _kinds(self) -> set[tuple[int, bool]]:
        """Rows of the products, each with True if they are accumulated."""
        each = prod(self.g.out[1:])
        return {((p.n1 - p.n0) * (p.o1 - p.o0) * each, self._adds(p)) for p in self._parts()}

    def _parts(self) -> Iterator[ColumnsPart]:
        g = self.g
        for n in range(0, g.n, self.samples):
            for o in range(0, g.out[0], self.rows):
                yield ColumnsPart(n, min(g.n, n + self.samples), o, min(g.out[0], o + self.rows))

    @property
    def pieces(self) -> list[Piece]:
        held = self.g.f * self.width * (self.turn is not None)
        more = max(
            *(p.scratch for p in self.products.values()), 0 if self.turn is None else self.turn.scratch
        )
        return [((self.columns,), float32), ((held,), float32), ((more,), _byte)]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def turned_calls(self, weight: Any, held: Any, scratch: Any) -> tuple[list[Run], Any]:
        """(the calls that put a weight in the columns' order, the reordered weight)."""
        if self.turn is None:
            return [], weight
        return [bind(self.turn, {SRC: (self.plain, weight), DST: (self.turned, held)}, scratch)], held

    def of_part(self, part: ColumnsPart, columns: Any) -> tuple[int, Any]:
        """(rows, columns (n, *O, *K, C) in their buffer) of a part."""
        g, out = self.g, (part.o1 - part.o0, *self.g.out[1:])
        rows = (part.n1 - part.n0) * prod(out)
        made = columns[: rows * self.width]
        if self.by_channel:
            turned = made.reshape(part.n1 - part.n0, *out, g.c, *g.kernel)
            return rows, np.moveaxis(turned, 1 + len(out), -1)
        return rows, made.reshape(part.n1 - part.n0, *out, *g.kernel, g.c)

    def blocks(self, part: ColumnsPart, at_once: bool) -> list[tuple[TapBlock, ...]]:
        """Blocks of taps of all axes of a part's windows."""
        g = self.g
        out, starts = (part.o1 - part.o0, *g.out[1:]), (part.o0, *(0 for _ in g.out[1:]))
        axes = zip(g.size, out, g.kernel, g.stride, g.pad, starts, (at_once,) * len(out))
        return list(every(*(blocks(*axis) for axis in axes)))

    def views(
        self, data: Any, columns: Any, place: tuple[TapBlock, ...], part: ColumnsPart
    ) -> tuple[Any, Any]:
        """(data, columns) of a block of taps of each axis, of one shape."""
        g, axes = self.g, len(place)
        starts = [0] * axes
        starts[0] = part.o0
        windows = [slice(b.start - o, b.stop - o) for b, o in zip(place, starts)]
        taps = columns[(slice(None), *windows, *(slice(b.first, b.last) for b in place))]
        order = [0, *(i for k in range(axes) for i in (1 + k, 1 + axes + k)), 1 + 2 * axes]
        taps = taps.transpose(order)
        first = [b.start * s + b.first - p for b, s, p in zip(place, g.stride, g.pad)]
        data = data[part.n0 : part.n1]
        strides = [data.strides[0]]
        for step, stride in zip(g.stride, data.strides[1:]):
            strides += [step * stride, stride]
        corner = data[(slice(None), *(slice(f, None) for f in first))]
        return as_strided(corner, taps.shape, (*strides, data.strides[-1])), taps

    def copies(self, data: Any, made: Any, part: ColumnsPart) -> list[Run]:
        """The calls that copy a part's taps to `made`; 0 where they are outside the data."""
        found = [self.views(data, made, place, part) for place in self.blocks(part, True)]
        calls: list[Run] = [partial(np.copyto, taps, there) for there, taps in found]
        if sum(taps.size for _, taps in found) < made.size:
            calls.insert(0, partial(made.fill, 0) if made.flags.c_contiguous else partial(np.copyto, made, 0))
        return calls
