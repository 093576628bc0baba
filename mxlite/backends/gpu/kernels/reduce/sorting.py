"""sort, argsort and topk: each row is ordered in tiles by shared memory, then tiles are merged.

Rows of up to 1024 elements are read and written once, several to a block; longer ones once more for each
doubling, in which only the first k pairs are moved. Nothing depends on the order in which blocks run.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....ops.index.order import Lines
from .....ops.index.sorting import argsort, sort, topk
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind, known
from ...compiler.source import assembled, KernelSource, structure, typedefs
from ...handwritten.each import each, launch
from ...handwritten.fill import zeros
from ...handwritten.layout import MOST, power_of_two
from ...rows import answer, row, table
from ...runtime.device import Device, InOrder, nothing, Run

SLOTS = 1024  # pairs of a block, as in order.cuh


_Order: Any = structure("order", "Order")


def source(key: str) -> KernelSource:
    """The kernels of order.cuh for keys of one type."""
    return assembled("types", "index", "whole", typedefs(K=key), "order")


class Sorting:
    """The order of the `first` elements of rows."""

    def __init__(self, device: Device, r: Request, first: int | None = None) -> None:
        self.device, self.lines, self.dtype = device, Lines.of(r.inputs[0], r.attrs.axis), r.dtype
        self.size = prod(r.inputs[0])
        self.first = self.lines.length if first is None else first
        self.wide = self.dtype.itemsize == 8
        self.tile = min(SLOTS, max(2, power_of_two(self.lines.length)))
        self.tiles = -(-self.lines.length // self.tile)
        self.fits = known(self.dtype) and 0 < self.size <= MOST
        self.text = source("uint64" if self.wide else "uint32")

    @property
    def _step(self) -> tuple[int, int]:
        """Bytes of all keys, and of all positions."""
        keys = self.size * (8 if self.wide else 4)
        return -(-keys // 256) * 256, -(-4 * self.size // 256) * 256

    @property
    def nbytes(self) -> int:
        return sum(self._step) * (2 if self.tiles > 1 else 1)

    def structure(self, data: Any) -> _Order:
        made = _Order(self.device.address(data), lines=self.lines.outer * self.lines.inner)
        made.length, made.inner, made.first = self.lines.length, self.lines.inner, self.first
        made.tile, made.tiles, made.kind = self.tile, self.tiles, kind(self.dtype)
        return made

    def call(self, data: Any, ascending: bool, work: Any, **wanted: Any) -> Run:
        """`wanted`: the arrays values, positions, places and mask, those that are requested."""
        if not self.first or all(x is None for x in wanted.values()):
            return nothing
        device, base = self.device, self.device.address(work)
        keys, places = self._step
        halves = [(base, base + keys), (base + keys + places, base + 2 * keys + places)]
        slots = self.lines.outer * self.lines.inner * self.tiles * self.tile
        made = self.structure(data)
        made.ascending = ascending
        made.keys, made.places = halves[0]
        runs = [launch(device, self.text, "sort_tiles", -(-slots // SLOTS), 512, made)]
        run = self.tile
        while run < self.lines.length:
            made = _Order.from_buffer_copy(made)
            made.keys, made.places = halves[0]
            made.merged_keys, made.merged_places = halves[1]
            runs.append(each(device, self.text, "merge_runs", self.size, made, ctypes.c_uint32(run)))
            halves.reverse()
            run *= 2
        made = _Order.from_buffer_copy(made)
        made.keys, made.places = halves[0]
        values, positions, kept, mask = (wanted.get(n) for n in ("values", "positions", "places", "mask"))
        if mask is not None:
            runs.append(zeros(device, mask))
        of = kind(positions.dtype) if positions is not None else 0
        arrays = values, positions, kept, mask, of, self.dtype.itemsize
        n = self.lines.outer * self.lines.inner * self.first
        return InOrder([*runs, each(device, self.text, "write_order", n, made, *arrays)])

    def put_back(self, d_out: Any, places: Any, d_data: Any) -> Run:
        """d_data = d_out at its original positions, 0 elsewhere."""
        runs = [zeros(self.device, d_data)] if self.first < self.lines.length else []
        n = self.lines.outer * self.lines.inner * self.first
        given = self.structure(d_out), d_data, places, self.dtype.itemsize
        return InOrder([*runs, each(self.device, self.text, "put_back", n, *given)])


def _sorting(device: Device, r: Request) -> Sorting | None:
    k = r.attrs.k or None if (r.op.forward_op or r.op) is topk else None
    made = Sorting(device, r, k)
    if (r.op is argsort or r.op is topk) and not known(as_dtype(r.attrs.dtype)):
        return None
    return made if made.fits else None


@row(_sorting, "cuda sort", lambda s: s.nbytes)
def _sort(s: Sorting, a: Any, data: Any, *, out: Any, places: Any, work: Any) -> Run:
    return s.call(data, a.is_ascend, work, values=out, places=places)


@row(_sorting, "cuda sort", lambda s: s.nbytes)
def _argsort(s: Sorting, a: Any, data: Any, *, out: Any, work: Any) -> Run:
    return s.call(data, a.is_ascend, work, positions=out)


@row(_sorting, "cuda sort", lambda s: s.nbytes)
def _topk(s: Sorting, a: Any, data: Any, *, output0: Any, output1: Any, places: Any, work: Any) -> Run:
    if a.ret_typ == "mask":
        return s.call(data, a.is_ascend, work, mask=output0)
    values, positions = (None, output0) if a.ret_typ == "indices" else (output0, output1)
    return s.call(data, a.is_ascend, work, values=values, positions=positions, places=places)


def _gradient(device: Device, r: Request) -> ChosenKernel | None:
    s = _sorting(device, r)
    if s is None:
        return None
    head = "d_out" if r.op is sort.grad_op else "d_output0"

    def connect(a: Any, *inputs: Any, d_data: Any) -> Run:
        have = dict(zip(r.op.signature.needs, inputs))
        d, places = have[head], have["places"]
        return zeros(device, d_data) if d is None or places is None else s.put_back(d, places, d_data)

    return answer(r, connect, 0, "cuda sort gradient")


rows = table((sort, _sort, _gradient), (topk, _topk, _gradient), (argsort, _argsort, None))
