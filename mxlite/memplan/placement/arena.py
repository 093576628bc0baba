"""Heuristics that place live ranges in one arena."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush

import numpy as np

from ..files.findings import found
from ..problem import padded
from .exact import tighten
from .fullest import fullest_parts, PART_WORK, PartSearch
from .gaps import lowest_gaps
from .liveness import LiveRange, most_live


@dataclass(frozen=True)
class Placement:
    """An offset in bytes for each range; `nbytes` is the size of the arena."""

    offsets: tuple[int, ...]
    nbytes: int


MANY = 4000  # ranges of a lowest-offset-first order at most: it is quadratic
WORK = 40_000  # of the search, in placements times neighbours: well below a second


def place(ranges: Sequence[LiveRange], lower_bound: int = 0) -> Placement:
    """The best of several heuristics and a short search, tried until one reaches `lower_bound`.

    That is the most live bytes at a step; an arena of that size is proved to be the least. Greedy by
    fullness first: it is exact on almost every training schedule. Deterministic: limits are counts, not
    seconds.
    """
    lower_bound = lower_bound or _most_live(ranges)
    best = greedy_by_fullness(ranges)
    if best.nbytes > lower_bound:
        best = min(best, greedy_by_size(ranges), key=lambda p: p.nbytes)
    if best.nbytes <= lower_bound:
        return best
    start, stop, nbytes = columns = _columns(ranges)
    text = sha256(b"".join(c.tobytes() for c in columns)).hexdigest()
    offsets = found(
        f"offsets {text} {lower_bound}",
        len(ranges),
        lambda: _searched(ranges, lower_bound, best).offsets,
        lambda offsets: _are_apart(start, stop, nbytes, offsets),
    )
    return Placement(offsets, max(o + padded(r.nbytes) for o, r in zip(offsets, ranges)))


def _are_apart(start: np.ndarray, stop: np.ndarray, nbytes: np.ndarray, offsets: np.ndarray) -> bool:
    """True if no two ranges share a step and a byte. O(n log n), except for insertion into a sorted list."""
    if (offsets < 0).any() or (offsets % padded(1)).any():
        return False
    lows: list[int] = []  # of live ranges, ascending, with their ends in `highs`
    highs: list[int] = []
    leaving: list[tuple[int, int]] = []
    some = np.flatnonzero((nbytes > 0) & (start < stop))
    for i in some[np.argsort(start[some], kind="stable")].tolist():
        begin, low = int(start[i]), int(offsets[i])
        while leaving and leaving[0][0] <= begin:
            at = bisect_left(lows, heappop(leaving)[1])
            del lows[at], highs[at]
        high = low + int(nbytes[i])
        at = bisect_left(lows, low)
        if (at and highs[at - 1] > low) or (at < len(lows) and lows[at] < high):
            return False
        lows.insert(at, low)
        highs.insert(at, high)
        heappush(leaving, (int(stop[i]), low))
    return True


def _searched(ranges: Sequence[LiveRange], lower_bound: int, best: Placement) -> Placement:
    """The better of `best` and the results of the slower methods."""
    best = _fullest_exactly(ranges, lower_bound, best)
    for key in KEYS if len(ranges) <= MANY else ():
        if best.nbytes <= lower_bound:
            return best
        best = min(best, lowest_offset_first(ranges, key), key=lambda p: p.nbytes)
    if best.nbytes > lower_bound:
        tight = tighten(ranges, lower_bound, best.nbytes, WORK)
        if tight is not None:
            best = Placement(tight, max(o + padded(r.nbytes) for o, r in zip(tight, ranges)))
    return best


def _most_live(ranges: Sequence[LiveRange]) -> int:
    return most_live([r.start for r in ranges], [r.stop for r in ranges], [r.nbytes for r in ranges])


def place_disjoint(ranges: Sequence[LiveRange]) -> Placement:
    """Placement that gives every range bytes of its own: the baseline without sharing."""
    offsets, at = [], 0
    for r in ranges:
        offsets.append(at)
        at += padded(r.nbytes)
    return Placement(tuple(offsets), at)


def greedy_by_fullness(ranges: Sequence[LiveRange]) -> Placement:
    """Greedy placement by fullness: ranges live at the fullest step first, among equals the larger; each at
    the lowest offset where it fits.

    The ranges live at the fullest step then lie without a gap, and later ones go where there is
    room: on training schedules the arena is as small as it can be. Near O(n log n).
    """
    total = _fullest(*_columns(ranges)).tolist() if ranges else []
    return _first_gap(
        ranges, sorted(range(len(ranges)), key=lambda i: (-total[i], -ranges[i].nbytes, ranges[i].start, i))
    )


def greedy_by_size(ranges: Sequence[LiveRange]) -> Placement:
    """Largest range first, each at the lowest offset where it fits.

    Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", offset
    calculation. Near O(n log n); ties go to the earlier range.
    """
    return _first_gap(
        ranges, sorted(range(len(ranges)), key=lambda i: (-ranges[i].nbytes, ranges[i].start, i))
    )


ROUNDS = 3  # of promotion, for each part that was searched
GROWN = 12  # times that a part is searched


def _fullest_exactly(ranges: Sequence[LiveRange], lower_bound: int, best: Placement) -> Placement:
    """The best of `best` and of orders that begin with the fullest ranges, stacked by the exact search.

    Each part is searched up to GROWN times, each time joined by the ranges that did not fit after it.
    """
    start, stop, size = _columns(ranges)
    fullness = _fullest(start, stop, size)
    every = np.lexsort((start, -size, -fullness))
    search = PartSearch(start, stop, size, lower_bound, PART_WORK)
    for part in fullest_parts(start, stop, size, fullness):
        for _ in range(GROWN):
            order = search.stacked(part)
            if order is None:
                break
            left = np.ones(len(ranges), bool)
            left[part] = False
            others = every[left[every]]
            found, high = _filled(ranges, size, order, others, lower_bound)
            best = min(best, found, key=lambda p: p.nbytes)
            if best.nbytes <= lower_bound:
                return best
            part = np.concatenate([part, high])
        if search.is_over:
            break
    return best


def _filled(
    ranges: Sequence[LiveRange], size: np.ndarray, part: np.ndarray, others: np.ndarray, lower_bound: int
) -> tuple[Placement, np.ndarray]:
    """The best placement that begins with `part`, and those of the `others` that ended above the bound.

    These come before the rest in the next round: they are hard to place, and the rest is not (Joslin and
    Clements 1999, "Squeaky Wheel Optimization").
    """
    best: Placement | None = None
    ever = np.zeros(len(ranges), bool)
    for _ in range(ROUNDS):
        found = _first_gap(ranges, np.concatenate([part, others]).tolist())
        if best is None or found.nbytes < best.nbytes:
            best = found
        if best.nbytes <= lower_bound:
            break
        high = (np.array(found.offsets) + size > lower_bound)[others]
        others = np.concatenate([others[high], others[~high]])
        ever[others[: np.count_nonzero(high)]] = True
    assert best is not None
    return best, np.flatnonzero(ever)


def _first_gap(ranges: Sequence[LiveRange], order: Sequence[int]) -> Placement:
    moments = sorted({r.start for r in ranges})
    start = np.searchsorted(moments, [r.start for r in ranges])
    stop = np.searchsorted(moments, [r.stop for r in ranges])
    size = [padded(r.nbytes) for r in ranges]
    offsets = lowest_gaps(len(moments), start, stop, size, order)
    return Placement(tuple(offsets), max((o + s for o, s in zip(offsets, size)), default=0))


KEYS = ("upper", "lower", "full", "long", "area", "width")


def lowest_offset_first(ranges: Sequence[LiveRange], key: str) -> Placement:
    """Canonical placement: always place next the range that can lie lowest; gaps below are never filled.

    Ties are broken by `key`: "lower" (earliest start),
    "upper" (latest stop), "area", "width", "full" (meets the most live bytes, then area) or "long" (then
    width). O(n^2) in vector operations.
    """
    n = len(ranges)
    start, stop, size = _columns(ranges)
    width = stop - start
    keys = {
        "lower": (-size, -width, start),
        "upper": (-size, -width, -stop),
        "area": (-width, -size * width),
        "width": (-size, -width),
    }
    if key in ("full", "long"):
        total = -_fullest(start, stop, size)
        keys["full"] = (-width, -size * width, total)
        keys["long"] = (-size, -width, total)
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


def _columns(ranges: Sequence[LiveRange]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, stop and padded size of each range."""
    rows = np.array([(r.start, r.stop, padded(r.nbytes)) for r in ranges], np.int64).reshape(-1, 3)
    start, stop, size = np.ascontiguousarray(rows.T)
    return start, stop, size


def _fullest(start: np.ndarray, stop: np.ndarray, size: np.ndarray) -> np.ndarray:
    """For each range the most live bytes at one of its steps. O(n log n)."""
    times = np.sort(start)  # the most is reached where something begins
    change = np.zeros(len(times) + 1, np.int64)
    begin, end = np.searchsorted(times, start), np.searchsorted(times, stop)
    np.add.at(change, begin, size)
    np.subtract.at(change, end, size)
    live = np.cumsum(change)
    # table[k][i] is the most of live[i : i + 2**k].
    table = [live]
    while 2 ** len(table) <= len(live):
        half = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-half], table[-1][half:]))
    result = np.empty(len(start), np.int64)
    power = np.frexp(end - begin)[1] - 1  # exact: whole numbers far below 2**53
    for k, row in enumerate(table):
        here = power == k
        result[here] = np.maximum(row[begin[here]], row[end[here] - 2**k])
    return result
