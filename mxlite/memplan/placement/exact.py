"""Offsets within a given capacity, or the proof that there are none.

Time is cut into *sections*: the steps at which a maximal set of buffers is live, all others left out. Each
buffer lives in a run of neighbouring sections. The search of `packing` places buffers from the bottom up; it
is complete, and is restarted: with other orders, with the buffers that made earlier starts fail
put first, and with growing limits, so that in the end one of the starts finishes.

Moffitt 2023, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS,
describes sections, canonical solutions, dominance and decomposition; the search here is of another kind: it
branches on whether one buffer is put on its base, and every refusal must name its blockers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np

from ...core.errors import SearchLimitError
from ..compiled import compiled, Ints, plain
from ..problem import padded
from .liveness import LiveRange
from .packing import FOUND, IMPOSSIBLE, NO_ROOM, PARTS, search

TRAIL = 200_000  # entries of the undo log; grows when it must
FIRST_START = 500  # buffers placed in the first start; later ones take multiples, in Luby's sequence
LIMIT = 2_000_000  # buffers placed in all: minutes of machine code


def solve(ranges: Sequence[LiveRange], capacity: int, limit: int = LIMIT) -> tuple[int, ...] | None:
    """An offset for each range within `capacity` bytes; None if that is proved impossible.

    Sizes are rounded up to the alignment. Raises SearchLimitError if `limit` placements were made without an
    answer. Deterministic, and the same with and without machine code.
    """
    return counted(ranges, capacity, limit)[0]


def counted(ranges: Sequence[LiveRange], capacity: int, limit: int) -> tuple[tuple[int, ...] | None, int]:
    """The result of `solve`, and the number of placements made for it."""
    some = [i for i, r in enumerate(ranges) if r.nbytes and r.start < r.stop]
    offsets = [0] * len(ranges)
    if not some:
        return (tuple(offsets) if capacity >= 0 else None), 0
    found, placed = Sections.of([ranges[i] for i in some], capacity).solve(limit)
    if found is None:
        return None, placed
    for i, offset in zip(some, found):
        offsets[i] = offset
    return tuple(offsets), placed


def tighten(ranges: Sequence[LiveRange], bound: int, height: int, work: int) -> tuple[int, ...] | None:
    """Offsets with a top below `height` bytes, found by a few starts of the search; None if they find none.

    For the default path: `work` is small, and nothing is proved except by reaching `bound`.
    """
    some = [i for i, r in enumerate(ranges) if r.nbytes and r.start < r.stop]
    # A cheap bound on the number of pairs: hopeless problems are not even begun.
    if not some or len(some) > work // 4:
        return None
    found = Sections.of([ranges[i] for i in some], height).tighten(bound, height, work)
    if found is None:
        return None
    offsets = [0] * len(ranges)
    for i, offset in zip(some, found):
        offsets[i] = offset
    return tuple(offsets)


@dataclass(frozen=True)
class Sections:
    """A problem for `packing.search`: buffers by their first section, sizes in the largest possible unit."""

    size: np.ndarray
    first: np.ndarray
    last: np.ndarray
    width: np.ndarray
    capacity: int
    unit: int
    order: np.ndarray  # order[i] is the number that the caller gave buffer i

    @classmethod
    def of(cls, ranges: Sequence[LiveRange], capacity: int) -> Sections:
        start = np.array([r.start for r in ranges], np.int64)
        stop = np.array([r.stop for r in ranges], np.int64)
        size = [padded(r.nbytes) for r in ranges]
        unit = gcd(*size)
        times = np.array(sorted({*start.tolist(), *stop.tolist()}), np.int64)
        begin, end = np.searchsorted(times, start), np.searchsorted(times, stop)
        begins, ends = np.zeros(len(times), bool), np.zeros(len(times), bool)
        begins[begin], ends[end] = True, True
        # Maximal sets of live buffers end at the last start before a stop.
        most, growing = [], False
        for t in range(len(times) - 1):
            growing |= bool(begins[t])
            if growing and ends[t + 1]:
                most.append(t)
                growing = False
        first, last = np.searchsorted(most, begin), np.searchsorted(most, end) - 1
        order = np.lexsort((first - last, first))
        units = np.array([s // unit for s in size], np.int64)
        return cls(
            units[order],
            first[order].astype(np.int64),
            last[order].astype(np.int64),
            (stop - start)[order],
            capacity // unit,
            unit,
            order,
        )

    def solve(self, limit: int) -> tuple[list[int] | None, int]:
        """Restart the search until a start finishes; return offsets in bytes, in the caller's order, and the
        number of placements.
        """
        if self.capacity < int(self.load().max()):
            return None, 0
        run = _Run(self)
        left = limit
        for start, rank in enumerate(self.ranks(run.blame)):
            answer, placed = run(rank, min(left, FIRST_START * _luby(start + 1)), self.capacity)
            left -= placed
            if answer == FOUND:
                return run.offsets(), limit - left
            if answer == IMPOSSIBLE:
                return None, limit - left
            if left <= 0:
                break
        raise SearchLimitError(
            f"{limit} buffers were placed, and neither offsets for {len(self.size)} buffers within "
            f"{self.capacity * self.unit} bytes were found nor a proof that there are none. Raise `limit`."
        )

    def tighten(self, bound: int, height: int, work: int) -> list[int] | None:
        """Offsets below `height`, as near to `bound` as some starts come; None if they find nothing.

        The first start tries the bound itself if there is enough work for that; the others bisect what is
        between. A start costs about one unit of work for each placed buffer and each neighbour that it
        examines.
        """
        n = len(self.size)
        run, best = _Run(self), None
        left = work * n // max(len(run.tables[-1]), n)
        ranks = self.ranks(run.blame)
        low, high = bound // self.unit, height // self.unit
        # The bound itself needs some backtracking; a capacity in between, hardly any.
        capacity, most = (low, 2 * n) if 2 * left >= 5 * n else ((low + high) // 2, n + n // 4)
        while left >= n and capacity < high:
            answer, placed = run(next(ranks), min(left, most), capacity)
            left -= placed
            if answer == FOUND:
                best = run.offsets()
                high = run.height()
            else:
                low = capacity
            if high - low <= max(1, high // 256):
                break
            capacity, most = (low + high) // 2, n + n // 4
        return best

    def load(self) -> np.ndarray:
        """Live units of each section."""
        change = np.zeros(int(self.last.max()) + 2, np.int64)
        np.add.at(change, self.first, self.size)
        np.subtract.at(change, self.last + 1, self.size)
        return np.cumsum(change)[:-1]

    def ranks(self, blame: list[int]) -> Iterator[list[int]]:
        """Buffer priorities for one start after the other; integers only, so that all machines agree."""
        n, load = len(self.size), self.load()
        size, width = self.size, self.width
        total = np.array([load[a : b + 1].max() for a, b in zip(self.first, self.last)], np.int64)
        area = size * width
        for keys in ((area, width, total), (total, area, width), (width, area, total), (width, size)):
            yield _ranked(np.lexsort([-k for k in keys]))
        logs = [_log2(v) for v in (size, width, self.last - self.first + 1, total)]
        chance = _chance(n)
        while True:
            mean = max(sum(blame) // n, 1)
            score = 3 * _log2(np.array([1 + b // mean for b in blame]))
            for weight, log in zip((1, 1, 1, 4), logs):
                score = score + weight * (next(chance) & 255) * log // 256
            noise = (0, 300, 900)[next(chance) % 3]
            score = score + np.array([noise * ((next(chance) & 1023) - 512) // 512 for _ in range(n)])
            yield _ranked(
                np.lexsort((-score, -total)) if next(chance) % 4 == 0 else np.argsort(-score, kind="stable")
            )
            for i, b in enumerate(blame):
                blame[i] = b * 9 // 10


class _Run:
    """`packing.search` with its work arrays: numpy arrays for machine code, else lists."""

    def __init__(self, sections: Sections) -> None:
        self.sections = sections
        n = len(sections.size)
        count = int(sections.last.max()) + 1
        first, last = sections.first, sections.last
        members = [np.flatnonzero((first <= s) & (last >= s)) for s in range(count)]
        near = [np.flatnonzero((first <= last[j]) & (last >= first[j])) for j in range(n)]
        near = [row[row != j] for j, row in enumerate(near)]
        self.machine = machine_code()
        self.kind: Callable[..., object] = _array if self.machine else list
        tables = (sections.size, first, last, *_joined(members), *_joined(near))
        self.tables = [self.kind([int(x) for x in t]) for t in tables]
        # The most that one round of inference can add, so that the trail is checked once a round.
        self.room = 2 * sum(map(len, members)) + 20 * n
        self.trail = self.zeros(self.room + TRAIL + 2)
        self.state: list[int] = []
        self.blame = [0] * n

    def zeros(self, number: int) -> Ints:
        """A work array."""
        return np.zeros(number, np.int64) if self.machine else [0] * number  # type: ignore[return-value]

    def offsets(self) -> list[int]:
        """Offsets found by the last start, in bytes, in the caller's order."""
        result = [0] * len(self.sections.size)
        for i, low in zip(self.sections.order, self.state):
            result[int(i)] = low * self.sections.unit
        return result

    def height(self) -> int:
        """Height of the placement, in units."""
        return max(low + int(size) for low, size in zip(self.state, self.sections.size))

    def __call__(self, rank: list[int], limit: int, capacity: int) -> tuple[int, int]:
        """Run one start; return its answer and the number of buffers it placed."""
        n = len(self.sections.size)
        call: Callable[..., int] = self.machine or plain(search)
        ranks, blamed = self.kind(rank), self.kind(self.blame)
        while True:
            state, span = self.zeros(4 * n), self.zeros(3)
            span[1] = int(self.sections.last.max())
            self.trail[0], self.trail[1] = 2, len(self.trail) - 2
            answer = call(
                n,
                capacity,
                *self.tables,
                ranks,
                limit,
                state,
                self.trail,
                self.room,
                self.zeros(4 * n + 4),
                self.zeros(8 * n + 16),
                self.zeros(n + 1),
                blamed,
                span,
            )
            if answer != NO_ROOM:
                break
            self.trail = self.zeros(2 * len(self.trail))
        self.state = [int(x) for x in state]
        self.blame[:] = [int(x) for x in blamed]  # type: ignore[attr-defined]
        return answer, int(span[2])


@cache
def machine_code() -> Callable[..., int] | None:
    """The search as machine code, compiled once; None without llvmlite."""
    return compiled(PARTS)


def _array(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _joined(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenation of rows, and the offset of each."""
    return np.cumsum([0, *map(len, rows)]), np.concatenate(rows)


def _ranked(order: np.ndarray) -> list[int]:
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return [int(r) for r in rank]


def _log2(values: np.ndarray) -> np.ndarray:
    """Approximately 1024 * log2: piecewise linear between powers of two."""
    powers = [int(v).bit_length() - 1 for v in values]
    return np.array([1024 * p + (1024 * int(v) >> p) - 1024 for p, v in zip(powers, values)], np.int64)


def _chance(seed: int) -> Iterator[int]:
    """Pseudo-random numbers, the same on every machine (Knuth's 64-bit linear congruential generator)."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 40


def _luby(i: int) -> int:
    """1 1 2 1 1 2 4 ...: Luby, Sinclair, Zuckerman 1993, "Optimal speedup of Las Vegas algorithms"."""
    k = i.bit_length()
    return 1 << (k - 1) if i == (1 << k) - 1 else _luby(i - (1 << (k - 1)) + 1)
