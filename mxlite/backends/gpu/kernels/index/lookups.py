"""Embedding, take and their gradients: each row is read once and written once, 16 bytes at a time.

Gradients are added up in the order of the indices, see gpu/handwritten/segments.py. In mode "raise" one
launch, or two, check all indices first; the next wait raises what they find (see checks.py), the lookup
clips.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....core.errors import PlaceError
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.index.embedding import ContribSparseEmbedding, Embedding
from .....ops.index.take import index_add, take
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind, known
from ...compiler.source import assembled, structure
from ...handwritten.each import launch, spread, THREADS
from ...handwritten.layout import Divisor, MOST, stretches
from ...handwritten.move import of_units, UNITS
from ...handwritten.segments import SegmentSums
from ...rows import answer, row, table
from ...runtime.checks import Checked, extremes
from ...runtime.device import Device, InOrder, nothing, one_after_other, pointer, Run
from ..arithmetic.elementwise import loop

FEW = 8192  # indices that one block checks
MOST_PARTS = 1024  # blocks that check more
PART_BYTES = 16

SOURCE = assembled("types", "index", "whole", "lookup", of_units("look_up", ["Lookup s"], UNITS))
RANGES = assembled("types", "index", "whole", "check_range")


Lookup: Any = structure("lookup", "Lookup", Divisor=Divisor)


class Rows:
    """out[o, i, :] = table[o, index[i], :] of tables (outer, length, inner) and `n` indices."""

    def __init__(
        self, device: Device, dtype: DType, outer: int, n: int, length: int, inner: int, wrap: bool
    ) -> None:
        self.device, self.inner, self.nbytes = device, inner, inner * dtype.itemsize
        self.outer, self.n, self.length, self.wrap = outer, n, length, wrap
        self.fits = length > 0 and (inner if outer == 1 else outer * n * inner) <= MOST

    def call(self, table: Any, indices: Any, out: Any) -> Run:
        device = self.device
        if not out.size:
            return nothing
        if self.outer > 1:
            return self._call(Lookup(*map(device.address, (table, indices, out))), self.n, indices.dtype)
        runs = []
        for first, count in stretches(self.n, self.inner, MOST):
            made = Lookup(device.address(table), device.address(indices) + first * indices.dtype.itemsize)
            made.out = device.address(out) + first * self.nbytes
            runs.append(self._call(made, count, indices.dtype))
        return one_after_other(runs)

    def _call(self, made: Lookup, n: int, indices: DType) -> Run:
        unit = next(u for u in (16, 8, 4, 2, 1) if self.nbytes % u == made.table % u == made.out % u == 0)
        inner = self.nbytes // unit
        made.units, made.inner, made.count = self.outer * n * inner, Divisor(inner), Divisor(n)
        made.length, made.outer = self.length, self.outer
        made.kind, made.wrap = kind(indices), self.wrap
        return spread(self.device, SOURCE, f"look_up_{unit}", made.units, made)


def _thirds(a: Any, shape: Shape) -> tuple[int, int, int]:
    axis = a.axis % len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _embedded(device: Device, r: Request) -> Rows | None:
    n, (length, inner) = prod(r.inputs[0]), r.inputs[1]
    table = Rows(device, r.dtypes[1], 1, n, length, inner, False)
    return table if table.fits and known(*r.dtypes) else None


@row(_embedded, "cuda lookup")
def _embedding(table: Rows, a: Any, data: Any, weight: Any, *, out: Any, work: Any) -> Run:
    return table.call(weight, data, out)


def _embedding_sums(device: Device, r: Request) -> SegmentSums | None:
    n, (length, inner) = prod(r.inputs[0]), r.inputs[1]
    sums = SegmentSums(device, r.dtypes[1], 1, n, length, inner)
    return sums if sums.fits and known(r.dtypes[0]) else None


@row(_embedding_sums, "cuda sorted sums", lambda s: s.workspace)
def _embedding_gradient(sums: SegmentSums, a: Any, d_out: Any, data: Any, *, d_weight: Any, work: Any) -> Run:
    return sums.call(data, d_out, d_weight, work)


def _take(device: Device, r: Request) -> ChosenKernel | None:
    """`take`, or the gradient of index_add: rows of the first input at the indices of the second."""
    outer, length, inner = _thirds(r.attrs, r.inputs[0])
    table = Rows(device, r.dtype, outer, prod(r.inputs[1]), length, inner, r.attrs.mode == "wrap")
    if not table.fits or not known(*r.dtypes):
        return None

    def connect(
        attrs: Any, a: Any, indices: Any, *, out: Any = None, d_updates: Any = None, work: Any
    ) -> Run:
        into = out if r.op is take else d_updates
        return _checked(device, r, length, indices, work, [table.call(a, indices, into)])

    return answer(r, connect, _check_bytes(r), "cuda lookup", checks=True)


def _sums(device: Device, r: Request) -> SegmentSums | None:
    outer, length, inner = _thirds(r.attrs, r.inputs[0])
    n = prod(r.inputs[1])
    sums = SegmentSums(device, r.dtype, outer, n, length, inner, r.attrs.mode == "wrap")
    return sums if sums.fits and known(r.dtypes[1]) else None


@row(_sums, "cuda sorted sums", lambda s: s.workspace)
def _take_gradient(sums: SegmentSums, attrs: Any, d_out: Any, indices: Any, *, d_a: Any, work: Any) -> Run:
    return sums.call(indices, d_out, d_a, work)


def _index_add(device: Device, r: Request) -> ChosenKernel | None:
    sums, n = _sums(device, r), (prod(r.inputs[0]),)
    length = r.inputs[0][r.attrs.axis]
    copy = loop(device, lambda w, x: x, [n], [r.dtype], n, r.dtype)
    if sums is None or copy is None:
        return None

    def connect(a: Any, data: Any, indices: Any, updates: Any, *, out: Any, work: Any) -> Run:
        runs = [sums.call(indices, updates, out, work, add=True)]
        if device.address(data) != device.address(out):
            runs.insert(0, copy.call(data, out))
        return _checked(device, r, length, indices, work, runs)

    nbytes = max(sums.workspace, _check_bytes(r))
    return answer(r, connect, nbytes, "cuda sorted sums", checks=True)


def _parts(n: int) -> int:
    """Number of blocks that check n indices."""
    return min(MOST_PARTS, -(-n // FEW))


def _check_bytes(r: Request) -> int:
    """Bytes of scratch for the check, which is free by the time `runs` begin."""
    parts = _parts(prod(r.inputs[1])) if r.attrs.mode == "raise" else 1
    return PART_BYTES * parts if parts > 1 else 0


def _checked(device: Device, r: Request, length: int, indices: Any, work: Any, runs: list[Run]) -> Run:
    """`runs`, after a check of the indices if one out of range is an error. work: `_check_bytes`."""
    if r.attrs.mode != "raise" or not indices.size:
        return InOrder(runs)
    name = (r.op.forward_op or r.op).op_name

    def describe(words: tuple[int, int, int]) -> str:
        least, most = extremes(words)
        return f"{name}: indices must be in [0, {length}), got {least} to {most}."

    check, n, parts = device.check(name, describe, PlaceError), indices.size, _parts(indices.size)
    slot, size = pointer(check.address), ctypes.c_int64(n)
    limits, sort = (ctypes.c_int64(0), ctypes.c_int64(length)), kind(indices.dtype)
    if parts == 1:
        threads = min(1024, -(-n // 32) * 32)
        look = launch(device, RANGES, "check_range", 1, threads, indices, slot, size, *limits, sort)
        return InOrder([Checked(look, check), *runs])
    first = launch(device, RANGES, "range_parts", parts, THREADS, indices, work, size, sort)
    look = launch(device, RANGES, "check_parts", 1, THREADS, work, slot, parts, *limits)
    return InOrder([first, Checked(look, check), *runs])


rows = table(
    (Embedding, _embedding, _embedding_gradient),
    (ContribSparseEmbedding, _embedding, _embedding_gradient),
    (take, _take, _take_gradient),
    (index_add, _index_add, _take),
)
