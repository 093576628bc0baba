"""Placing live ranges in one arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .liveness import LiveRange
from .problem import padded


@dataclass(frozen=True)
class Placement:
    """An offset in bytes for each range; `nbytes` is the size of the arena."""

    offsets: tuple[int, ...]
    nbytes: int


Order = Callable[[np.ndarray, np.ndarray, np.ndarray], "np.ndarray"]


def place(ranges: Sequence[LiveRange], lower_bound: int = 0) -> Placement:
    """The best of a few heuristics, tried until one reaches `lower_bound` (the most live bytes at a step).

    Greedy by size first: it is exact on almost every training schedule. Deterministic.
    """
    best = greedy_by_size(ranges)
    if best.nbytes > lower_bound:
        best = min(best, greedy_by_time(ranges), key=lambda p: p.nbytes)
    if best.nbytes > lower_bound and len(ranges) <= 4000:
        for key in ("lower", "upper", "area", "width"):
            best = min(best, lowest_offset_first(ranges, key), key=lambda p: p.nbytes)
            if best.nbytes <= lower_bound:
                break
    return best


def place_disjoint(ranges: Sequence[LiveRange]) -> Placement:
    """Every range in bytes of its own: what there is before any sharing."""
    offsets, at = [], 0
    for r in ranges:
        offsets.append(at)
        at += padded(r.nbytes)
    return Placement(tuple(offsets), at)


def greedy_by_size(ranges: Sequence[LiveRange]) -> Placement:
    """Largest range first, each at the lowest offset where it fits.

    Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", offset
    calculation. O(n^2) in vector operations; ties go to the earlier range.
    """
    return _first_gap(
        ranges, sorted(range(len(ranges)), key=lambda i: (-ranges[i].nbytes, ranges[i].start, i))
    )


def greedy_by_time(ranges: Sequence[LiveRange]) -> Placement:
    """Earliest range first, the larger of two that start together; each at the lowest offset where it
    fits.
    """
    return _first_gap(
        ranges, sorted(range(len(ranges)), key=lambda i: (ranges[i].start, -ranges[i].nbytes, i))
    )


def _first_gap(ranges: Sequence[LiveRange], order: Sequence[int]) -> Placement:
    n = len(ranges)
    offsets = [0] * n
    start, stop = np.empty(n, np.int64), np.empty(n, np.int64)
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)
    top = 0
    for placed, i in enumerate(order):
        r = ranges[i]
        size = padded(r.nbytes)
        meets = np.flatnonzero((start[:placed] < r.stop) & (stop[:placed] > r.start))
        at = 0
        if meets.size:
            lows, highs = low[meets], high[meets]
            by_low = np.argsort(lows, kind="stable")
            lows = lows[by_low]
            # Where the blocks below each one end; a gap lies between that and the block.
            below = np.maximum.accumulate(highs[by_low])
            gaps = np.flatnonzero(lows[1:] - below[:-1] >= size)
            if lows[0] >= size:
                at = 0
            elif gaps.size:
                at = int(below[gaps[0]])
            else:
                at = int(below[-1])
        offsets[i] = at
        start[placed], stop[placed], low[placed], high[placed] = r.start, r.stop, at, at + size
        top = max(top, at + size)
    return Placement(tuple(offsets), top)


def lowest_offset_first(ranges: Sequence[LiveRange], key: str) -> Placement:
    """Canonical placement: always place next what can lie lowest; gaps below are never filled.

    Of the ranges that can lie lowest, the first in the order `key`: "lower" (start), "upper" (stop),
    "area" or "width" takes it. O(n^2) in vector operations.
    """
    n = len(ranges)
    start = np.array([r.start for r in ranges], np.int64)
    stop = np.array([r.stop for r in ranges], np.int64)
    size = np.array([padded(r.nbytes) for r in ranges], np.int64)
    width = stop - start
    keys = {
        "lower": (-size, -width, start),
        "upper": (-size, -width, -stop),
        "area": (-width, -size * width),
        "width": (-size, -width),
    }
    rank = np.empty(n, np.int64)
    rank[np.lexsort(keys[key])] = np.arange(n)
    current = np.zeros(n, np.int64)
    left = np.ones(n, bool)
    offsets = [0] * n
    far = np.iinfo(np.int64).max
    for _ in range(n):
        lowest = np.where(left, current, far).min()
        i = int(np.where(left & (current == lowest), rank, far).argmin())
        offsets[i] = int(current[i])
        left[i] = False
        meets = (start < stop[i]) & (stop > start[i])
        np.maximum(current, offsets[i] + size[i], out=current, where=meets)
    return Placement(tuple(offsets), max((o + int(s) for o, s in zip(offsets, size)), default=0))
