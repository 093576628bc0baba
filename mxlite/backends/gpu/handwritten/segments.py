"""Sums of rows by destination index, in a fixed order: no atomic addition of floats.

The indices are sorted on the device, equal ones in their original order: one pass for each 8 bits of the
largest, one launch for it with up to 2048 indices, three with more. Then segments of 32
of them are added up separately, in order; sums that cross a segment's end are combined by a second
kernel. The source is read once, the target written once, after it was filled with zeros.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ....core.dtype import as_dtype
from ....graph.opdef import DType
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiler.kinds import computed_in, floating, kind
from ..compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ..runtime.device import Device, InOrder, nothing, pointer, Run
from .each import launch, THREADS
from .fill import zeros
from .fold import sum_type, width_of
from .layout import Divisor, MOST, power_of_two

TILE = 2048  # of sort.cuh
DIGIT_BITS = 8
CHUNK = 32  # indices whose rows are added up by one block
MOST_BLOCKS = 65535  # along the second axis of a grid

_BYTE = as_dtype("uint8")  # unit of scratch for unsigned 32-bit numbers


Sort: Any = structure("sort", "Sort")
Segments: Any = structure("segments", "Segments", Divisor=Divisor)


SORT = assembled("types", "index", "whole", "sort")


def source(dtype: DType) -> KernelSource:
    """The kernels that add up rows of one dtype."""
    types = typedefs(T=NAMES[str(dtype)], C=computed_in(dtype)) + f"enum {{ WIDTH = {width_of(dtype)} }};\n"
    return assembled("types", types, "math", "group", "index", "segments")


class SortedIndices:
    """The order of `n` indices into an axis of `length`. `workspace` in bytes includes the result."""

    def __init__(self, device: Device, n: int, length: int, wrap: bool) -> None:
        self.device, self.n, self.length, self.wrap = device, n, length, wrap
        self.tiles = -(-n // TILE)
        self.passes = max(1, -(-(length - 1).bit_length() // DIGIT_BITS))
        counts = 256 * self.tiles if self.tiles > 1 else 0
        self._pieces: list[Piece] = [*[((4 * n,), _BYTE)] * 4, ((4 * counts,), _BYTE)]
        self.workspace = scratch_bytes(self._pieces)
        self.fits = 0 < n <= MOST and 0 < length <= MOST and 256 * self.tiles <= MOST

    def call(self, indices: Any, work: Any) -> tuple[Run, int, int]:
        """(the run, address of the sorted indices, address of their original positions)."""
        device = self.device
        keys, places, other_keys, other_places, counts = map(device.address, carve(work, self._pieces))
        given, wanted = (other_keys, other_places), (keys, places)
        runs: list[Run] = []
        for turn in range(self.passes):
            made = Sort(keys=given[0], places=given[1], keys_out=wanted[0], places_out=wanted[1])
            made.counts, made.length, made.n, made.tiles = counts, self.length, self.n, self.tiles
            made.shift, made.wrap = DIGIT_BITS * turn, self.wrap
            if turn == 0:
                made.indices, made.kind = device.address(indices), kind(indices.dtype)
            if self.tiles > 1:
                runs.append(launch(device, SORT, "sort_count", self.tiles, 256, made))
                scanned = pointer(counts), ctypes.c_uint32(256 * self.tiles)
                runs.append(launch(device, SORT, "sort_scan", 1, 1024, *scanned))
            runs.append(launch(device, SORT, "sort_move", self.tiles, 256, made))
            given, wanted = wanted, given
        return InOrder(runs), *given


class SegmentSums:
    """target[o, index[i], :] += source[o, i, :] of arrays (outer, length, inner) and (outer, n, inner)."""

    def __init__(
        self, device: Device, dtype: DType, outer: int, n: int, length: int, inner: int, wrap: bool = False
    ) -> None:
        self.device, self.dtype = device, dtype
        self.order = SortedIndices(device, n, length, wrap)
        self.pack = width_of(dtype) if inner % width_of(dtype) == 0 else 1
        self.inner = inner // self.pack
        self.width = outer * self.inner
        self.threads = min(THREADS, max(32, power_of_two(self.width)))
        self.chunks = -(-n // CHUNK)
        shared_rows = self.chunks * self.width * self.pack if self.chunks > 1 else 0
        wide = sum_type(dtype)
        self._pieces: list[Piece] = [
            ((self.order.workspace,), _BYTE),
            ((shared_rows,), wide),
            ((shared_rows,), wide),
        ]
        self.workspace = scratch_bytes(self._pieces)
        self.fits = self.order.fits and floating(dtype) and 0 < self.width <= MOST_BLOCKS * self.threads

    def call(self, indices: Any, source_array: Any, target: Any, work: Any, add: bool = False) -> Run:
        """`add`: to the old content of the target; otherwise its other rows become 0."""
        if not target.size:
            return nothing
        device = self.device
        sorting, first, last = carve(work, self._pieces)
        sort, keys, places = self.order.call(indices, sorting)
        made = Segments(keys, places, device.address(source_array), device.address(target))
        made.first, made.last = device.address(first), device.address(last)
        made.length, made.n, made.width, made.chunk = self.order.length, self.order.n, self.width, CHUNK
        made.inner, made.add = Divisor(self.inner), add
        size = self.pack * self.dtype.itemsize
        made.vector = all(a % size == 0 for a in (made.source, made.target))
        grid = self.chunks, -(-self.width // self.threads)
        kind_of = "wide" if self.pack > 1 else "single"
        runs: list[Run] = [sort] if add else [zeros(device, target), sort]
        for name in ("add_chunk", "add_across")[: 2 if self.chunks > 1 else 1]:
            runs.append(launch(device, source(self.dtype), f"{name}_{kind_of}", grid, self.threads, made))
        return InOrder(runs)
