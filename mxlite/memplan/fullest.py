"""Orders of placing that begin with what sees the fullest steps, stacked by the exact search.

At the fullest step no byte may be lost to a gap, at some others hardly any; most steps have room. What is
hard to place are the buffers that live at one of the former. So the search is given only the fullest buffers,
those that have the most live bytes at one of their steps:

    bound  .....|##|.....|###|....     Sections are then few: everything that lives at the fullest step shares
           ...##|##|.....|###|##..     one, and each buffer that is less full adds one at most.
           .####|##|#####|.##|####
           ========================    What lives in all sections lies below, outside the search. Nothing is
    steps       ^           ^          lost by that: in any solution such a buffer may be moved to the bottom,
             fullest    next fullest   and what lay below it up by as much.

That is a small problem, whatever the length of the schedule. Its buffers then are the first to be given the
lowest gap, from the bottom up, so none lies higher than the search has put it: what lay below it came before
it and lies no higher either. Where the others do not fit, a larger part is searched.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.errors import SearchLimitError
from .exact import solve
from .liveness import LiveRange

FIRST = 48  # buffers in the first search, besides those below; each next one may have half as many again
EACH = 100  # places of a search for each of its buffers
WORK = 2_000_000  # of all searches, in places times buffers: tenths of a second


def stacked(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray, fullness: np.ndarray, bound: int
) -> Iterator[np.ndarray]:
    """The fullest buffers in the order to be placed, for one part after the other, each larger than the last.

    Parts for which the search has no answer are left out. Ends with all buffers, with the work, or with the
    proof that a part has no offsets within `bound` bytes.
    """
    some = np.flatnonzero(size > 0)
    order = some[np.lexsort((-size[some], -fullness[some]))]
    ends = np.flatnonzero(np.diff(fullness[order], append=-1)) + 1  # equally full ones stay together
    left, most, begin = WORK, FIRST, 0
    while begin < len(ends):
        low, high = begin, len(ends) - 1
        while low < high:
            middle = (low + high + 1) // 2
            part = order[: ends[middle]]
            if np.count_nonzero(~_cut(start[part], stop[part])[2]) <= most:
                low = middle
            else:
                high = middle - 1
        begin = low + 1
        part = order[: ends[low]]
        first, last, through = _cut(start[part], stop[part])
        below, others = part[through], part[~through]
        number = len(others)
        most = max(most, number) * 3 // 2
        limit = min(EACH * number, left // max(1, number))
        if limit < number:
            return
        columns = (first[~through], last[~through] + 1, size[others])
        ranges = [LiveRange((), *row) for row in zip(*(c.tolist() for c in columns))]
        try:
            offsets = solve(ranges, bound - int(size[below].sum()), limit)
        except SearchLimitError:
            left -= limit * number
            continue
        left -= number * number
        if offsets is None:
            return
        below = below[np.lexsort((-size[below], start[below] - stop[below]))]
        yield np.concatenate([below, others[np.argsort(offsets, kind="stable")]])


def _cut(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each range [start, stop) its first and its last section, and whether it lives in all of them.

    A section lies wherever a beginning is followed by an end. O(n log n).
    """
    n = len(start)
    begins = np.repeat([1, 0], n)
    order = np.lexsort((begins, np.concatenate([start, stop])))
    sections = np.diff(begins[order], append=1) < 0
    before = np.empty(2 * n, np.int64)
    before[order] = np.cumsum(sections) - sections
    first, last = before[:n], before[n:] - 1
    return first, last, (first == 0) & (last == before.max() - 1)
