"""Lowest-gap placement: offsets for one range after another, fast for tens of thousands.

A range must avoid all bytes that a placed range occupies at some step of its own. A segment tree over time
finds them without looking at each range. Its leaves are the steps at which a range starts (two ranges overlap
if and only if they do where the later one starts), and each node stands for all leaves below it:

    used[x]      bytes of all ranges that start below x or cover x as a whole
    covered[x]   bytes of the ranges that cover x as a whole, but not its parent

    [0, 8)                 a range over [1, 6) is put into the nodes 1, [2, 4) and [4, 6): `covered` of
    [0, 4)      [4, 8)     these three, `used` of them and of all above. A query for [3, 5) reads
    [0,2) [2,4) [4,6) ..   `used` of 3 and of 4, and `covered` of all above these.
    0  1  2  3  4  5  6 7

Bytes are sets of maximal blocks; in a dense arena there are few of those, and most of what
is added is in `used` already, and then also in that of every node above.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from ..compiled import compiled
from .stacking import NO_ROOM, PARTS

Blocks = list[int]  # low, high, low, high, ...: ascending, and no two of them touch


POOL = 8  # numbers for each range, at first


def lowest_gaps(
    length: int, start: np.ndarray, stop: np.ndarray, size: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Offsets of ranges [start[i], stop[i]) of `length` moments, each in the lowest gap when its turn in
    `order` comes. Near O(n log n); the same with and without machine code.
    """
    code = machine_code()
    if code is not None:
        return _stacked(code, length, start, stop, size, order)
    gaps, offsets = Gaps(length), [0] * len(size)
    begins, ends = start.tolist(), stop.tolist()
    for i in order:
        at = offsets[i] = gaps.lowest(begins[i], ends[i], size[i])
        gaps.take(begins[i], ends[i], at, size[i])
    return offsets


@cache
def machine_code() -> Callable[..., int] | None:
    """The loops of stacking.py as machine code, compiled once; None without llvmlite."""
    return compiled(PARTS)


def _stacked(
    code: Callable[..., int],
    length: int,
    start: np.ndarray,
    stop: np.ndarray,
    size: Sequence[int],
    order: Sequence[int],
    kind: Callable[[np.ndarray], object] = np.asarray,
) -> list[int]:
    """`lowest_gaps` run by `code`, on arrays that `kind` creates."""
    leaves, number = 1 << max(0, length - 1).bit_length(), len(size)
    given = [kind(np.asarray(a, np.int64)) for a in (order, start, stop, size)]
    offsets = kind(np.zeros(number, np.int64))
    rows = [kind(np.zeros(4 * leaves, np.int64)) for _ in range(3)]
    looked_at = [kind(np.zeros(4 * leaves.bit_length() + 4, np.int64)) for _ in range(2)]
    room = POOL * (number + 1)
    while True:
        pool, left = kind(np.zeros(room, np.int64)), kind(np.array([0, room], np.int64))
        if code(leaves, number, *given, offsets, pool, *rows, left, *looked_at) != NO_ROOM:
            return [int(o) for o in np.asarray(offsets)]
        room *= 2


class Gaps:
    """Occupied bytes of the ranges placed so far, over `length` moments."""

    def __init__(self, length: int) -> None:
        self.leaves = 1 << max(0, length - 1).bit_length()
        self.used: list[Blocks] = [[] for _ in range(2 * self.leaves)]
        self.covered: list[Blocks] = [[] for _ in range(2 * self.leaves)]

    def lowest(self, start: int, stop: int, size: int) -> int:
        """The lowest offset at which `size` bytes are free during [start, stop)."""
        used, covered = self.used, self.covered
        found: list[Blocks] = []
        low, high = start + self.leaves, stop + self.leaves
        left, right = low >> 1, (high - 1) >> 1
        while low < high:
            if low & 1:
                if blocks := used[low]:
                    found.append(blocks)
                low += 1
            if high & 1:
                high -= 1
                if blocks := used[high]:
                    found.append(blocks)
            low >>= 1
            high >>= 1
        while left != right:
            if blocks := covered[left]:
                found.append(blocks)
            if blocks := covered[right]:
                found.append(blocks)
            left >>= 1
            right >>= 1
        while left:
            if blocks := covered[left]:
                found.append(blocks)
            left >>= 1
        pairs: list[tuple[int, int]] = []
        for blocks in found:
            pairs += zip(blocks[::2], blocks[1::2])
        if len(found) > 1:
            pairs.sort()
        at = 0
        for begin, end in pairs:
            if begin - at >= size:
                break
            if end > at:
                at = end
        return at

    def take(self, start: int, stop: int, offset: int, size: int) -> None:
        """Give bytes [offset, offset + size) to a range that lives during [start, stop)."""
        if not size:
            return
        end = offset + size
        low, high = start + self.leaves, stop + self.leaves
        while low < high:
            if low & 1:
                self._take(low, offset, end)
                low += 1
            if high & 1:
                high -= 1
                self._take(high, offset, end)
            low >>= 1
            high >>= 1

    def _take(self, node: int, low: int, high: int) -> None:
        _add(self.covered[node], low, high)
        while node and _add(self.used[node], low, high):
            node >>= 1


def _add(blocks: Blocks, low: int, high: int) -> bool:
    """Add [low, high) to `blocks`; return True if some of it is new."""
    inside = bisect_right(blocks, low)
    if inside & 1 and blocks[inside] >= high:
        return False
    first, last = bisect_left(blocks, low), bisect_right(blocks, high)
    # An odd index means that the place is inside a block or at its end, which is then extended.
    blocks[first:last] = ([] if first & 1 else [low]) + ([] if last & 1 else [high])
    return True
