"""Convolutions as matrix products (im2col), where one matrix has a row of columns for each window: its taps.

    columns[o, tap] = data[o * stride + tap]                               (N, *O, taps, C)
    out      = columns (N, *O, taps, C) @ weight (F, taps, C)
    d_weight = d_out (N, *O, F) @ columns (N, *O, taps, C)
    columns  = d_out (N, *O, F) @ weight (F, taps, C), and d_data[o * stride + tap] += columns[o, tap]

No useless products are computed, whatever the shape of the window. oneDNN's kernels go over every
position of data and every tap, also those outside the output: a window as wide as the data has a single
position, and they do many times the work. And for large strides they run as many small products as a stride
has positions. The price is the columns, which are written and read once, some rows of the output at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ....core.cached import cached_property
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ....ops.scratch import carve, scratch_bytes
from ..compiled.nests import ColumnSum
from ..onednn import Attr, bind, in_turn, Primitive, reorder, Run
from ..onednn.constants import DST, SRC
from ..onednn.product import Layout
from .columns import blocks, Columns, ColumnsPart
from .fold import Fold, Windows
from .pointwise import is_product

LEAST_WORK = 1 << 21  # multiplications, below which an additional call takes as long
FILLED = 16  # channels to which direct kernels pad
MANY_FILTERS = 64


def suits_columns(g: Geometry) -> bool:
    """True if a product with columns is faster than direct kernels in the forward pass and for the weight
    gradient, as measured: windows have one position along the last axis, and a column serves many filters.
    Direct kernels go along that axis; for fewer than 16 channels they are slower still.
    """
    work = g.n * prod(g.out) * g.f * prod(g.kernel) * g.c
    return _has_one_place(g) and work >= LEAST_WORK and (g.c < FILLED or g.f >= MANY_FILTERS)


def suits_columns_by_data(g: Geometry) -> bool:
    """True if direct kernels for the data gradient do much useless work: windows have one
    position along the last axis, lie far apart, or go over few channels, which direct kernels pad to 16.
    """
    taps, places = prod(g.kernel), prod(g.stride)
    few = g.c == 1 or (g.c <= 4 and taps <= 4 * places)
    return _has_one_place(g) or few or (places >= 256 and g.c < 32)


def _has_one_place(g: Geometry) -> bool:
    """True if windows have one position along the last axis, and most of their taps lie in the data. A window
    with one position along all axes counts only if copying columns is cheaper than reordering the weight, as
    direct kernels do.
    """
    if g.out[-1] > 1 or is_product(g) or (prod(g.out) == 1 and g.n > g.f and g.c >= FILLED):
        return False
    axes = zip(g.size, g.out, g.kernel, g.stride, g.pad)
    inside = prod(sum((b.last - b.first) * (b.stop - b.start) for b in blocks(*axis)) for axis in axes)
    return 2 * inside >= prod(g.out) * prod(g.kernel)


class ColumnsForward(Columns):
    """out = data * weight + bias."""

    def __init__(self, g: Geometry, weight: DType, bias: bool) -> None:
        self.bias = bias
        super().__init__(g, weight)

    def _layouts(self, n: int) -> tuple[Layout, Layout, Layout]:
        f, width = self.g.f, self.width
        return Layout.dense(n, width), Layout.dense(f, width).turned, Layout.dense(n, f)

    def connect(
        self, data: Any, weight: Any, bias: Any, addend: Any, out: Any, work: Any, factor: Any = None
    ) -> Run:
        g = self.g
        columns, held, scratch = carve(work, self.pieces)
        calls, weight = self.turned_calls(weight, held, scratch)
        data, out = data.reshape(g.n, *g.size, g.c), out.reshape(g.n, *g.out, g.f)
        for part in self._parts():
            rows, made = self.of_part(part, columns)
            calls += self.copies(data, made, part)
            target = out[part.n0 : part.n1, part.o0 : part.o1]
            calls.append(self.products[rows, False].bind(columns, weight, target, bias, scratch))
        return in_turn(calls)


class ColumnsByWeight(Columns):
    """d_weight and d_bias from d_out and data; `adds`: accumulated into both."""

    def __init__(self, g: Geometry, weight: DType, bias: bool, adds: bool) -> None:
        self.adds = adds
        super().__init__(g, weight)
        self.sum_of = ColumnSum(g.n * prod(g.out), g.f, g.dtype, weight, adds) if bias else None

    def _layouts(self, n: int) -> tuple[Layout, Layout, Layout]:
        f, width = self.g.f, self.width
        return Layout.dense(n, f).turned, Layout.dense(n, width), Layout.dense(f, width)

    def _turn(self) -> Primitive:
        return reorder(self.turned, self.plain, Attr().add_to_output() if self.adds else None)

    def _adds(self, part: ColumnsPart) -> bool:
        return part.n0 > 0 or part.o0 > 0 or (self.adds and self.is_straight)

    @property
    def is_straight(self) -> bool:
        """True if the product is the weight gradient in the user's layout."""
        return self.g.c == 1 or self.taps == 1 or self.g.n * prod(self.g.out) <= self.g.f

    @property
    def nbytes(self) -> int:
        return max(scratch_bytes(self.pieces), self.sum_of.nbytes if self.sum_of is not None else 0)

    def connect(self, d_out: Any, data: Any, d_weight: Any, d_bias: Any, work: Any) -> Run:
        g = self.g
        columns, held, scratch = carve(work, self.pieces)
        calls: list[Run] = []
        d_out, data = d_out.reshape(g.n, *g.out, g.f), data.reshape(g.n, *g.size, g.c)
        target = d_weight if self.turn is None else held
        for part in self._parts():
            rows, made = self.of_part(part, columns)
            calls += self.copies(data, made, part)
            own = d_out[part.n0 : part.n1, part.o0 : part.o1]
            calls.append(self.products[rows, self._adds(part)].bind(own, columns, target, None, scratch))
        if self.turn is not None:
            arrays = {SRC: (self.turned, held), DST: (self.plain, d_weight)}
            calls.append(bind(self.turn, arrays, scratch))
        if d_bias is not None and self.sum_of is not None:
            calls.append(self.sum_of.connect(d_out, d_bias, work))
        return in_turn(calls)


class ColumnsByData(Columns):
    """d_data from d_out and weight."""

    def _layouts(self, n: int) -> tuple[Layout, Layout, Layout]:
        f, width = self.g.f, self.width
        return Layout.dense(n, f), Layout.dense(f, width), Layout.dense(n, width)

    @cached_property
    def folds(self) -> Mapping[Windows, Fold]:
        """Generated code that adds up the taps of each part; none where they are added tap by tap."""
        try:
            return {w: Fold(w) for w in (self._windows(part)[0] for part in self._parts())}
        except LookupError:
            return {}

    def _windows(self, part: ColumnsPart) -> tuple[Windows, slice]:
        """The windows of a part, and the rows of data's first axis that they cover."""
        g = self.g
        (size, *sizes), (pad, *pads), out = g.size, g.pad, part.o1 - part.o0
        rows, whole = slice(0, size), out == g.out[0]
        if not whole:
            first = part.o0 * g.stride[0] - pad
            rows = slice(max(0, first), max(0, min(size, first + (out - 1) * g.stride[0] + g.kernel[0])))
            rows, pad = slice(rows.start, max(rows.start, rows.stop)), rows.start - first
        size = rows.stop - rows.start
        return Windows(
            part.n1 - part.n0, g.c, (out, *g.out[1:]), (size, *sizes), g.kernel, g.stride, (pad, *pads),
            self.by_channel, not whole,
        ), rows  # fmt: skip

    def connect(self, d_out: Any, weight: Any, d_data: Any, work: Any) -> Run:
        g = self.g
        columns, held, scratch = carve(work, self.pieces)
        calls, weight = self.turned_calls(weight, held, scratch)
        if not self.folds or any(w.adds for w in self.folds):
            calls.insert(0, partial(d_data.fill, 0))
        d_out, d_data = d_out.reshape(g.n, *g.out, g.f), d_data.reshape(g.n, *g.size, g.c)
        for part in self._parts():
            rows, made = self.of_part(part, columns)
            own = d_out[part.n0 : part.n1, part.o0 : part.o1]
            calls.append(self.products[rows, False].bind(own, weight, columns, None, scratch))
            windows, there = self._windows(part)
            if self.folds:
                target = d_data[part.n0 : part.n1, there]
                calls.append(self.folds[windows].connect(columns, target))
                continue
            for place in self.blocks(part, False):
                there, taps = self.views(d_data, made, place, part)
                calls.append(partial(np.add, there, taps, out=there))
        return in_turn(calls)
