"""In-place packing of a weight: from its plain layout to the layout of its kernel in the same bytes.

oneDNN's layouts of weights are blocks of filters, one after the other: some filters are a **slab**, a range
of bytes, in the plain array and in the other. So the whole can be converted between the two with room for one
more slab, and nothing but the order of its elements changes. Where a layout has padding, behind the last
filters or in every block, the array is as much larger:

    plain    |  0  |  1  |  2  |
    packed   |  0 ..|  1 ..|  2 ..|

Packing begins with the last slab, and unpacking with the first: none is overwritten before it has moved.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType
from .onednn import bind, Memory, memory, OneDNNError, reorder, Run
from .onednn.constants import DST, SRC, WEIGHTS
from .onednn.library import library
from .onednn.primitive import point

_STEPS = (8, 16, 32, 48, 64)
"""Candidate numbers of filters of a slab, those of a layout's blocks."""

_byte = np.dtype("uint8")


class Slabs:
    """Conversion of a weight of `shape` to `layout` and back. Raises LookupError if that has no slabs.

    Filters, or the units of a dense layer, lie along `axis` of `shape`; in the plain weight they are
    contiguous. `nbytes` is the size that the array needs.
    """

    def __init__(self, shape: Shape, dtype: DType, layout: Memory, axis: int = 0) -> None:
        one = prod(shape) // shape[axis] * dtype.itemsize
        order = (axis, *(i for i in range(len(shape)) if i != axis))

        def some(count: int) -> Shape:
            return (*shape[:axis], count, *shape[axis + 1 :])

        for step in _STEPS:
            count, rest = divmod(shape[axis], step)
            there = part_of(layout, 0, some(step), axis) if count else None
            if there is None or layout.nbytes != (count + bool(rest)) * there.nbytes:
                continue
            if count > 1 and part_of(layout, step, some(step), axis) is None:  # the blocks are larger
                continue
            self.layout, self.nbytes, self.plain = layout, layout.nbytes, shape[axis] * one
            self.sizes = step * one, there.nbytes
            self._whole = memory(some(step), dtype, order), there
            self._last: tuple[Memory, Memory] | None = None
            if rest:
                end = part_of(layout, count * step, some(rest), axis)
                if end is None:
                    raise LookupError
                self._last = memory(some(rest), dtype, order), end
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
        held = np.empty(self.sizes[0], _byte)
        for (start, end), there, memories in reversed(self._slabs()):
            plain = held[: end - start]
            np.copyto(plain, source[start:end])
            if memories is self._last:
                target[there[0] :] = 0
                self._carry(0, memories, plain, target)
            else:
                self._carry(0, memories, plain, target[slice(*there)])

    def unpack(self, source: Any, target: Any) -> None:
        """Unpack `source` in the kernel's layout into the plain `target`, which may be the same bytes."""
        held = np.empty(self.sizes[0], _byte)
        for (start, end), there, memories in self._slabs():
            plain = held[: end - start]
            self._carry(1, memories, source if memories is self._last else source[slice(*there)], plain)
            np.copyto(target[start:end], plain)

    def _slabs(self) -> list[tuple[tuple[int, int], tuple[int, int], tuple[Memory, Memory]]]:
        """The bytes of each slab in the plain array and in the other, and its two layouts; that of incomplete
        blocks begins with all.
        """
        found = []
        own, there = self.sizes
        for i, start in enumerate(range(0, self.plain, own)):
            end = min(self.plain, start + own)
            memories = self._whole if end - start == own or self._last is None else self._last
            found.append(((start, end), (i * there, (i + 1) * there), memories))
        return found

    def _carry(self, way: int, memories: tuple[Memory, Memory], source: Any, target: Any) -> None:
        primitive = self._moves[id(memories)][way]
        before, after = memories[::-1] if way else memories
        work = np.empty(primitive.scratch, _byte)
        bind(primitive, {SRC: (before, source), DST: (after, target)}, work)()

    def point(self, run: Run, array: Any) -> None:
        """Make a layer's call read its weight in `array` from now on."""
        point(run, WEIGHTS, array)


def part_of(layout: Memory, first: int, shape: Shape, axis: int = 0) -> Memory | None:
    """The part of `layout` that begins at filter `first`; None if its blocks are larger."""
    lib = library()
    assert lib is not None
    axes = ctypes.c_int64 * len(shape)
    start = axes(*(first if i == axis else 0 for i in range(len(shape))))
    try:
        return Memory(lib.new("dnnl_memory_desc_create_submemory", layout.handle, axes(*shape), start))
    except OneDNNError:
        return None
