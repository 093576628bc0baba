"""Dense layers that cast a float32 batch to 16 bits: a cast and a product for each band of samples."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ....fused.wide_dense import band_of, bands, WideDense, WideDenseWeightGradient
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.product import Layout, Product
from ...products import product_of, Term
from .narrowed_dense import Casts

_byte = np.dtype("uint8")


def forward(r: Request) -> ChosenKernel | None:
    """The output."""
    (hidden, width), dtype = r.inputs[1], r.dtypes[1]
    if r.dtypes[0] != float32 or set(r.dtypes[1:]) != {dtype} or not _fits(r, dtype):
        return None
    count = prod(r.outputs[0][:-1])
    bias = "" if r.attrs.no_bias else "bias"
    made: dict[int, Product] = {}
    for rows in _heights(count, width):
        layouts = Layout.dense(rows, width), Layout.dense(hidden, width).turned, Layout.dense(rows, hidden)
        found = product_of(dtype, Term("data", "weight", "out", layouts, bias), count * hidden * width)
        if found is None:
            return None
        made[rows] = found
    casts = Casts(dtype, [(rows, width) for rows in made])
    pieces: list[Piece] = [
        ((band_of(count, width), width), dtype),
        ((max(p.scratch for p in made.values()),), _byte),
    ]

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, work: Any) -> Run:
        held, scratch = carve(work, pieces)
        x, y = data.reshape(count, width), out.reshape(count, hidden)
        calls: list[Run] = []
        for rows in bands(count, width):
            narrow = held[: rows.stop - rows.start]
            calls.append(casts.call(x[rows], narrow))
            calls.append(made[len(narrow)].bind(narrow, weight, y[rows], bias, scratch))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), _name(made, band_of(count, width)))


def by_weight(r: Request) -> ChosenKernel | None:
    """The weight gradient."""
    (hidden, width), dtype = r.attrs.shape, r.dtypes[0]
    if r.dtypes[1] != float32 or not _fits(r, dtype):
        return None
    count = prod(r.inputs[0]) // hidden
    made: dict[tuple[int, bool], Product] = {}
    for rows in _heights(count, width):
        for adds in (False, True):
            layouts = (
                Layout.dense(rows, hidden).turned,
                Layout.dense(rows, width),
                Layout.dense(hidden, width),
            )
            term = Term("d_out", "data", "d_weight", layouts, adds=adds)
            found = product_of(dtype, term, count * hidden * width, (dtype, dtype, float32))
            if found is None:
                return None
            made[rows, adds] = found
    casts = Casts(dtype, [(rows, width) for rows in _heights(count, width)])
    pieces: list[Piece] = [
        ((band_of(count, width), width), dtype),
        ((max(p.scratch for p in made.values()),), _byte),
    ]

    def connect(xp: Any, a: Any, d_out: Any, data: Any, *, d_weight: Any, work: Any) -> Run:
        held, scratch = carve(work, pieces)
        d, x = d_out.reshape(count, hidden), data.reshape(count, width)
        calls: list[Run] = []
        for rows in bands(count, width):
            narrow = held[: rows.stop - rows.start]
            calls.append(casts.call(x[rows], narrow))
            how = made[len(narrow), rows.start > 0]
            calls.append(how.bind(d[rows], narrow, d_weight, None, scratch))
        return in_turn(calls)

    return connected(
        connect, scratch_bytes(pieces), _name({n: p for (n, _), p in made.items()}, band_of(count, width))
    )


def _fits(r: Request, dtype: Any) -> bool:
    return dtype.itemsize == 2 and not any(0 in s for s in (*r.inputs, *r.outputs))


def _heights(count: int, width: int) -> set[int]:
    return {s.stop - s.start for s in bands(count, width)}


def _name(made: Mapping[int, Product], rows: int) -> str:
    return f"compiled cast, {made[rows].name}, {rows} samples at a time"


ROWS = kernel_rows(BOTH, {WideDense: forward, WideDenseWeightGradient: by_weight})
