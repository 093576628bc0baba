"""Dense layers that cast their weight to 16 bits: a cast and a product for each band of rows, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.elementwise.cast import Cast
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import Backend, ChosenKernel, connected, Request
from ....fused.narrowed_dense import band_of, bands, NarrowedDense, NarrowedDenseDataGradient
from ...compiled.matrix import product as compiled
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, library, Run
from ...onednn.product import Layout, Product, product
from ...products import product_of, Term
from ..generated.elementwise import ROWS as ELEMENTWISE

_byte = np.dtype("uint8")
_bfloat16 = np.dtype(ml_dtypes.bfloat16)


def forward(r: Request) -> ChosenKernel | None:
    """The output."""
    if not _fits(r):
        return None
    (hidden, width), count = r.inputs[1], prod(r.outputs[0][:-1])
    bias = "" if r.attrs.no_bias else "bias"

    def make(rows: int) -> Product | None:
        layouts = Layout.dense(count, width), Layout.dense(rows, width).turned, Layout.dense(count, rows)
        return product_of(r.dtype, Term("data", "weight", "out", layouts, bias), count * hidden * width)

    made = _of_each(r.inputs[1], make)
    if made is None:
        return None
    cast = Casts(r.dtype, _shapes(r.inputs[1]))
    pieces: list[Piece] = [
        (band_of(r.inputs[1]), r.dtype), ((count * hidden,), r.dtype),
        ((max(p.scratch for p in made.values()),), _byte),
    ]  # fmt: skip

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, work: Any) -> Run:
        held, columns, scratch = carve(work, pieces)
        calls: list[Run] = []
        parts = _parts(columns, out.reshape(count, hidden), weight.shape)
        for rows, (near, _) in zip(bands(weight.shape), parts):
            narrow = held[: rows.stop - rows.start]
            own = None if bias is None else bias[rows]
            calls.append(cast.call(weight[rows], narrow))
            calls.append(made[len(narrow)].bind(data, narrow, near, own, scratch))
        calls.append(partial(_copy_all, [(there, near) for near, there in parts]))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), _name(made, r.inputs[1]))


def by_data(r: Request) -> ChosenKernel | None:
    """The gradient in data."""
    if not _fits(r):
        return None
    (hidden, width), count = r.inputs[1], prod(r.inputs[0]) // max(1, r.inputs[1][0])

    def make(rows: int, adds: bool) -> Product | None:
        grad = Layout.dense(count, rows, dtype=r.dtype)
        weight, total = Layout.dense(rows, width, dtype=r.dtype), Layout.dense(count, width)
        lib = library()
        found = None
        if r.dtype == _bfloat16 and lib is not None and lib.has_bf16:
            found = product(grad, weight, total, False, 1.0, adds)
        return found or compiled.product(grad, weight, total, None, adds)

    fresh, more = (_of_each(r.inputs[1], partial(make, adds=adds)) for adds in (False, True))
    if fresh is None or more is None:
        return None
    cast = Casts(r.dtype, _shapes(r.inputs[1]))
    scratch_of = max(p.scratch for p in (*fresh.values(), *more.values()))
    pieces: list[Piece] = [
        (band_of(r.inputs[1]), r.dtype), ((count * hidden,), r.dtype), ((count, width), float32),
        ((scratch_of,), _byte),
    ]  # fmt: skip

    def connect(xp: Any, a: Any, grad: Any, weight: Any, *, d_data: Any, work: Any) -> Run:
        held, columns, total, scratch = carve(work, pieces)
        parts = _parts(columns, grad.reshape(count, hidden), weight.shape)
        calls: list[Run] = [partial(_copy_all, parts)]
        for rows, (near, _) in zip(bands(weight.shape), parts):
            narrow = held[: rows.stop - rows.start]
            calls.append(cast.call(weight[rows], narrow))
            how = (more if rows.start else fresh)[len(narrow)]
            calls.append(how.bind(near, narrow, total, None, scratch))
        calls.append(cast.call(total, d_data.reshape(count, width)))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), _name(more, r.inputs[1]))


class Casts:
    """Casts of float32 to `dtype`, with a kernel for each shape; those for `shapes` are created at once."""

    def __init__(self, dtype: DType, shapes: Iterable[Shape]) -> None:
        self.attrs = Cast.Attrs(dtype=dtype.name)
        self.kernels: dict[Shape, ChosenKernel] = {}
        for shape in shapes:
            self.kernel(shape)

    def kernel(self, shape: Shape) -> ChosenKernel:
        if shape not in self.kernels:
            asked = Request(Cast, self.attrs, (shape,), (shape,), float32, (float32,))
            found = (row(asked) for row in ELEMENTWISE.get(Cast, ()))
            whole = Backend.reference(Cast, self.attrs, (shape,), (shape,), float32)
            self.kernels[shape] = next((k for k in found if k is not None), whole)
        return self.kernels[shape]

    def call(self, source: Any, target: Any) -> Run:
        kernel = self.kernel(source.shape)
        return kernel.link(kernel.run, np, self.attrs, source, out=target)


def _shapes(weight: Shape) -> set[Shape]:
    """Shapes of the bands of `weight`."""
    return {(s.stop - s.start, weight[1]) for s in bands(weight)}


def _parts(columns: Any, whole: Any, weight: Shape) -> list[tuple[Any, Any]]:
    """Pairs of arrays for each band of `weight`: a contiguous copy in `columns`, on which kernels are faster,
    and the band's columns of `whole`.
    """
    found = []
    for rows in bands(weight):
        there = whole[:, rows]
        start = len(whole) * rows.start
        found.append((columns[start : start + there.size].reshape(there.shape), there))
    return found


def _copy_all(pairs: list[tuple[Any, Any]]) -> None:
    """Copy the second array of each pair to the first."""
    for target, source in pairs:
        np.copyto(target, source)


def _fits(r: Request) -> bool:
    """True if all arrays but the weight are of 16 bits, and none is empty."""
    others = {d for i, d in enumerate(r.dtypes) if i != 1}
    if others != {r.dtype} or r.dtype.itemsize != 2 or r.dtypes[1] != float32:
        return False
    return not any(0 in s for s in (*r.inputs, *r.outputs))


def _of_each(weight: Shape, make: Callable[[int], Product | None]) -> dict[int, Product] | None:
    """Products by number of rows of a band; None if one of them has no good one."""
    made = {n: make(n) for n in {s.stop - s.start for s in bands(weight)}}
    found = {n: p for n, p in made.items() if p is not None}
    return found if len(found) == len(made) else None


def _name(made: dict[int, Product], weight: Shape) -> str:
    rows = band_of(weight)[0]
    return f"compiled cast, {made[rows].name}, {rows} rows at a time"


ROWS = kernel_rows(BOTH, {NarrowedDense: forward, NarrowedDenseDataGradient: by_data})
