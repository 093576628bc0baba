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

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from ..compiled import compiled, interpreted
from .stacking import NO_ROOM, PARTS

POOL = 8  # numbers for each range, at first


def lowest_gaps(
    length: int, start: np.ndarray, stop: np.ndarray, size: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Offsets of ranges [start[i], stop[i]) of `length` moments, each in the lowest gap when its turn in
    `order` comes. Near O(n log n); the same with and without machine code.
    """
    leaves, number = 1 << max(0, length - 1).bit_length(), len(size)
    given = [np.ascontiguousarray(a, np.int64) for a in (order, start, stop, size)]
    offsets = np.zeros(number, np.int64)
    rows = [np.zeros(4 * leaves, np.int64) for _ in range(3)]
    looked_at = [np.zeros(4 * leaves.bit_length() + 4, np.int64) for _ in range(2)]
    room = POOL * (number + 1)
    while True:
        pool, left = np.zeros(room, np.int64), np.array([0, room], np.int64)
        if machine_code()(leaves, number, *given, offsets, pool, *rows, left, *looked_at) != NO_ROOM:
            return [int(o) for o in offsets]
        room *= 2


@cache
def machine_code() -> Callable[..., int]:
    """The loops of stacking.py as machine code, compiled once; as plain Python without llvmlite."""
    return compiled(PARTS) or interpreted(PARTS[-1])
