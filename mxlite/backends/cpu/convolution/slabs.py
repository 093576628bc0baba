"""In-place packing of a weight: from its plain layout to the layout of its kernel in the same bytes.

oneDNN's layouts of weights are blocks of filters, one after the other: some filters occupy the same range of
bytes, a **slab**, in the plain array and in the other. So the whole can be converted between the two
with room for one more slab, and nothing but the order of its elements changes. If the filters are no
multiple of a block, the last slab has padding, and the array needs that much room after it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ....graph.ir import Shape
from ....graph.opdef import DType
from ..onednn import bind, Memory, memory, OneDNNError, reorder, Run
from ..onednn.constants import DST, SRC, WEIGHTS
from ..onednn.library import library
from ..onednn.primitive import point

_STEPS = (8, 16, 32, 48, 64)
"""Candidate numbers of filters of a slab, those of a layout's blocks."""

_byte = np.dtype("uint8")


class Slabs:
    """Conversion of a weight of `shape` to `layout` and back. Raises LookupError if that has no slabs.

    `nbytes` is the size that the array needs.
    """

    def __init__(self, shape: Shape, dtype: DType, layout: Memory) -> None:
        one = prod(shape[1:]) * dtype.itemsize
        for step in _STEPS:
            count, rest = divmod(shape[0], step)
            there = part_of(layout, 0, (step, *shape[1:])) if count else None
            if (
                there is None
                or there.nbytes != step * one
                or layout.nbytes != (count + bool(rest)) * step * one
            ):
                continue
            self.layout, self.nbytes, self.size, self.plain = (
                layout,
                layout.nbytes,
                step * one,
                shape[0] * one,
            )
            self._whole = memory((step, *shape[1:]), dtype), there
            self._last: tuple[Memory, Memory] | None = None
            if rest:
                end = part_of(layout, count * step, (rest, *shape[1:]))
                if end is None:
                    raise LookupError
                self._last = memory((rest, *shape[1:]), dtype), end
            self._moves = {id(m): (reorder(*m), reorder(*m[::-1])) for m in (self._whole, self._last) if m}
            return
        raise LookupError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slabs) and self.nbytes == other.nbytes and self.layout == other.layout

    __hash__ = None  # type: ignore[assignment]

    def pack(self, source: Any, target: Any) -> None:
        """Pack the plain `source` into `target` in the kernel's layout, which may be the same bytes.

        Both are 1-D arrays of `nbytes` bytes.
        """
        held = np.empty(self.size, _byte)
        for start, end, memories in self._slabs():
            plain = held[: end - start]
            np.copyto(plain, source[start:end])
            if memories is self._last:
                target[start:] = 0
                self._carry(0, memories, plain, target)
            else:
                self._carry(0, memories, plain, target[start:end])

    def unpack(self, source: Any, target: Any) -> None:
        """Unpack `source` in the kernel's layout into the plain `target`, which may be the same bytes."""
        held = np.empty(self.size, _byte)
        for start, end, memories in self._slabs():
            plain = held[: end - start]
            self._carry(1, memories, source if memories is self._last else source[start:end], plain)
            np.copyto(target[start:end], plain)

    def _slabs(self) -> Iterator[tuple[int, int, tuple[Memory, Memory]]]:
        """The bytes of each slab in the plain array, and its two layouts; that of padding begins with all."""
        for start in range(0, self.plain, self.size):
            end = min(self.plain, start + self.size)
            whole = end - start == self.size
            yield start, end, self._whole if whole or self._last is None else self._last

    def _carry(self, way: int, memories: tuple[Memory, Memory], source: Any, target: Any) -> None:
        primitive = self._moves[id(memories)][way]
        before, after = memories[::-1] if way else memories
        work = np.empty(primitive.scratch, _byte)
        bind(primitive, {SRC: (before, source), DST: (after, target)}, work)()

    def point(self, run: Run, array: Any) -> None:
        """Make a convolution's call read its weight in `array` from now on."""
        point(run, WEIGHTS, array)


def part_of(layout: Memory, first: int, shape: Shape) -> Memory | None:
    """The part of `layout` that begins at filter `first`; None if its blocks are larger."""
    lib = library()
    assert lib is not None
    axes = ctypes.c_int64 * len(shape)
    start = axes(first, *(0 for _ in shape[1:]))
    try:
        return Memory(lib.new("dnnl_memory_desc_create_submemory", layout.handle, axes(*shape), start))
    except OneDNNError:
        return None
