"""Placement orders that begin with the ranges of the fullest steps, stacked by the exact search.

At the fullest step no byte may be lost to a gap, at some others hardly any; most steps have room. The ranges
that are hard to place are those live at one of the former. So the search is given only the fullest ranges,
those that see the most live bytes at one of their steps:

    bound  .....|##|.....|###|....     Sections are then few: everything that lives at the fullest step shares
           ...##|##|.....|###|##..     one, and each buffer that is less full adds one at most.
           .####|##|#####|.##|####
           ========================    What lives in all sections lies below, outside the search. Nothing is
    steps       ^           ^          lost by that: in any solution such a buffer may be moved to the bottom,
             fullest    next fullest   and what lay below it up by as much.

That is a small problem, whatever the length of the schedule. Its ranges then are the first to be given the
lowest gap, from the bottom up, so none lies higher than the search has put it: what lay below it came before
it and lies no higher either. If the other ranges do not fit, those that did not join the part, which is
searched once more, and so on; then a larger part is searched.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...core.errors import SearchLimitError
from .exact import counted
from .liveness import LiveRange

FIRST = 48  # ranges in the first part, besides those below; each next part may have half as many more
EACH = 100  # placements of a search for each of its ranges
PART_WORK = 44_000_000  # of all searches: less than half a second
FILL = 60  # work of placing all ranges after one part, for each of them


class PartSearch:
    """Exact search of parts of the ranges, within `bound` bytes and `work` in total.

    `is_over`: the work is used up, or a part is proved to have no offsets.
    """

    def __init__(self, start: np.ndarray, stop: np.ndarray, size: np.ndarray, bound: int, work: int) -> None:
        self.start, self.stop, self.size, self.bound = start, stop, size, bound
        self.left = work
        self.is_over = False

    def stacked(self, part: np.ndarray) -> np.ndarray | None:
        """The ranges `part` in placement order; None if the search has no answer."""
        start, stop, size = self.start, self.stop, self.size
        first, last, through = _cut(start[part], stop[part])
        below, others = part[through], part[~through]
        number = len(others)
        # A placement looks at all ranges once, and for each of its sections at the ranges live there.
        sections = int((last[~through] - first[~through] + 1).sum())
        each = number + 4 * sections * sections // max(1, number * number)
        self.left -= FILL * len(start)
        limit = min(EACH * number, self.left // max(1, each))
        if limit < number:
            self.is_over = True
            return None
        columns = (first[~through], last[~through] + 1, size[others])
        ranges = [LiveRange((), *row) for row in zip(*(c.tolist() for c in columns))]
        try:
            offsets, placed = counted(ranges, self.bound - int(size[below].sum()), limit)
        except SearchLimitError:
            self.left -= limit * each
            return None
        self.left -= placed * each
        if offsets is None:
            self.is_over = True
            return None
        below = below[np.lexsort((-size[below], start[below] - stop[below]))]
        return np.concatenate([below, others[np.argsort(offsets, kind="stable")]])


def fullest_parts(
    start: np.ndarray, stop: np.ndarray, size: np.ndarray, fullness: np.ndarray
) -> Iterator[np.ndarray]:
    """The fullest ranges as growing parts, each larger than the last. The last part has all."""
    some = np.flatnonzero(size > 0)
    order = some[np.lexsort((-size[some], -fullness[some]))]
    ends = np.flatnonzero(np.diff(fullness[order], append=-1)) + 1  # equally full ones stay together
    most, begin = FIRST, 0
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
        yield part
        most = max(most, int(np.count_nonzero(~_cut(start[part], stop[part])[2]))) * 3 // 2


def _cut(start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each range [start, stop) its first and its last section, and True if it spans all of them.

    A section lies wherever a start is followed by a stop. O(n log n).
    """
    n = len(start)
    begins = np.repeat([1, 0], n)
    order = np.lexsort((begins, np.concatenate([start, stop])))
    sections = np.diff(begins[order], append=1) < 0
    before = np.empty(2 * n, np.int64)
    before[order] = np.cumsum(sections) - sections
    first, last = before[:n], before[n:] - 1
    return first, last, (first == 0) & (last == before.max() - 1)
