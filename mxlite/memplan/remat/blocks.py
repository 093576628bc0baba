"""A problem as a sequence of blocks: bytes to hold a segment of them, and seconds to recompute it.

Blocks lie between the cuts of `split.find_cuts`. Within a block, values are worth keeping in a fixed order,
most seconds saved per byte first: its *path*. For a segment between two kept cuts the tables of chain.py then
derive three numbers from sums along the blocks: the bytes that backward needs at once, the bytes that stay
from the forward pass, the seconds of recomputation. They are a model. Whatever is derived from it is
costed exactly before it is used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

import numpy as np

from ...core.cached import cached_property
from ..placement.liveness import live_buffers
from ..problem import padded, Problem
from .schedule import make_schedule
from .split import Cuts

SMALL = 40  # tasks of a block whose path is chosen step by step; larger blocks are sorted once
STEPS = 24  # of a path that is sorted once

Row = tuple[tuple[int, ...], float, float, float]
"""Tasks that a step of a path keeps; then bytes kept, seconds recomputed, seconds of passing cheap tasks."""


@dataclass(frozen=True)
class Path:
    """The order in which the results of one block are worth keeping.

    Step i keeps `tasks[i]` (numbers within the block), for `price[i]` seconds saved per byte; prices fall.
    After it `nbytes[i]` are kept and `seconds[i]` are recomputed, including `passing[i]` of cheap tasks whose
    results both backward and the path to the block's end need. Step 0 keeps only what must be kept.
    """

    tasks: tuple[tuple[int, ...], ...]
    price: np.ndarray
    nbytes: np.ndarray
    seconds: np.ndarray
    passing: np.ndarray

    def kept(self, least_price: float) -> int:
        """Number of steps that save at least `least_price` seconds per byte, step 0 included."""
        return bisect_right(self._falling, -least_price)

    @cached_property
    def _falling(self) -> list[float]:
        return [-p for p in self.price.tolist()]


class Blocks:
    """The blocks of `cuts.problem`: block b has the forward tasks [begin[b], end[b])."""

    def __init__(self, cuts: Cuts) -> None:
        self.cuts = cuts
        self.problem: Problem = cuts.problem
        n = self.problem.num_forward
        self.begin = [0, *(t + 1 for t in cuts.at)]
        self.end = [*(t + 1 for t in cuts.at), n]
        self.num = len(self.begin)
        self.size = [0] * n  # bytes of all results that lie in the arena
        self.needed = [0] * n  # the part of these that backward reads
        values, tasks = self.problem.values, self.problem.tasks
        needed = {v for t in tasks[n:] for v in t.inputs}
        readers: dict[int, list[int]] = {}
        for t in range(n):
            for v in tasks[t].inputs:
                readers.setdefault(v, []).append(t)
        self.results: list[list[tuple[int, bool, tuple[int, ...]]]] = [
            [
                (padded(values[v].nbytes), v in needed, tuple(readers.get(v, ())))
                for v in tasks[t].outputs
                if v >= 0 and not values[v].fixed
            ]
            for t in range(n)
        ]  # arena results of each task: bytes, is it read by backward, the forward tasks that read it
        self.size = [sum(r[0] for r in rows) for rows in self.results]
        self.needed = [sum(r[0] for r in rows if r[1]) for rows in self.results]
        self.droppable = [
            bool(self.size[t]) and task.recomputable and not task.mutates for t, task in enumerate(tasks[:n])
        ]
        self.leaving = [
            tuple(t for t in kept if t >= self.begin[b]) for b, kept in enumerate([*cuts.kept, ()])
        ]  # tasks of a block whose results cross its end

    @cached_property
    def gradient_bytes(self) -> np.ndarray:
        """For each block the peak bytes of gradients and workspaces while backward is in it."""
        problem = self.problem
        n = problem.num_forward
        schedule = make_schedule(problem, [0] * n)
        live = live_buffers(schedule)
        change = np.zeros(len(schedule.task) + 1)
        for start, stop, nbytes in zip(live.start, live.stop, live.nbytes):
            if start >= n:
                change[start] += padded(nbytes)
                change[stop] -= padded(nbytes)
        total = np.cumsum(change)
        block_of = self.cuts.block_of
        result = np.zeros(self.num)
        at = self.num - 1
        for s in range(n, len(schedule.task)):
            read = problem.reads[schedule.task[s]]
            if read:
                at = block_of[max(read)]
            result[at] = max(result[at], total[s])
        return result

    @cached_property
    def paths(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """The path of each block when its end is no kept cut, and when it is. Equal blocks share theirs."""
        known: dict[object, tuple[Path, Path]] = {}
        found = []
        for b in range(self.num):
            key = self._signature(b)
            if key not in known:
                known[key] = self._path(b, False), self._path(b, True)
            found.append(known[key])
        return tuple(p for p, _ in found), tuple(p for _, p in found)

    def _signature(self, b: int) -> object:
        begin, end = self.begin[b], self.end[b]
        tasks, reads = self.problem.tasks, self.problem.reads
        rows = tuple(
            (
                tasks[t].seconds,
                tasks[t].cheap,
                self.size[t],
                self.needed[t],
                self.droppable[t],
                tuple(p - begin for p in reads[t] if p >= begin),
            )
            for t in range(begin, end)
        )
        return rows, tuple(t - begin for t in self.leaving[b])

    def _again(self, b: int, demanded: Iterable[int], kept: set[int]) -> list[int]:
        """Tasks of block b that are recomputed for what is `demanded`, when `kept` is still there."""
        begin, reads, droppable = self.begin[b], self.problem.reads, self.droppable
        found: set[int] = set()
        stack = [t for t in demanded if t not in kept and droppable[t]]
        while stack:
            t = stack.pop()
            if t not in found:
                found.add(t)
                stack += [p for p in reads[t] if p >= begin and p not in kept and droppable[p]]
        return sorted(found)

    def _path(self, b: int, cut_kept: bool) -> Path:
        span = range(self.begin[b], self.end[b])
        leaving = self.leaving[b]
        demanded = [t for t in span if self.needed[t] or t in leaving]
        kept = set(leaving) if cut_kept else set()

        def row(added: Sequence[int]) -> Row:
            return self._row(b, added, demanded, kept, cut_kept)

        rows = [row(())]
        groups = iter(self._sorted(b, demanded, kept)) if len(span) > SMALL else None
        while running := self._again(b, demanded, kept):
            if groups is not None:
                added = next(groups)
            else:
                best = max(
                    (_price(rows[-1], self._row(b, (t,), demanded, kept | {t}, cut_kept)), -t)
                    for t in running
                )
                added = [-best[1]]
            kept.update(added)
            rows.append(row(added))
        return _falling(rows)

    def _row(
        self, b: int, added: Sequence[int], demanded: Sequence[int], kept: set[int], cut_kept: bool
    ) -> Row:
        """Row of block b's path for keeping `kept`: bytes kept and seconds recomputed."""
        tasks, begin = self.problem.tasks, self.begin[b]
        running = set(self._again(b, demanded, kept))
        nbytes = 0
        for t in range(begin, self.end[b]):
            if t in kept or not self.droppable[t]:
                crosses = t in self.leaving[b]
                for size, is_needed, readers in self.results[t]:
                    if is_needed or crosses or not running.isdisjoint(readers):
                        nbytes += size
        passing = [] if cut_kept else self._again(b, self.leaving[b], kept)
        return (
            tuple(t - begin for t in added),
            float(nbytes),
            fsum(tasks[t].seconds for t in running),
            fsum(tasks[t].seconds for t in passing if tasks[t].cheap and self.needed[t]),
        )

    def _sorted(self, b: int, demanded: Sequence[int], kept: set[int]) -> list[list[int]]:
        """Tasks of a large block that are recomputed, most seconds per byte first, in a few groups."""
        tasks = self.problem.tasks
        order = sorted(self._again(b, demanded, kept), key=lambda t: (-tasks[t].seconds / self.size[t], t))
        width = max(1, -(-len(order) // STEPS))
        return [order[i : i + width] for i in range(0, len(order), width)]


def _falling(rows: list[Row]) -> Path:
    """The path of `rows`; steps that save more together than apart are merged."""
    hull = rows[:1]
    for row in rows[1:]:
        hull.append(row)
        while len(hull) > 2 and _price(hull[-2], hull[-1]) >= _price(hull[-3], hull[-2]):
            last, middle = hull.pop(), hull.pop()
            hull.append((middle[0] + last[0], *last[1:]))
    return Path(
        tuple(r[0] for r in hull),
        np.array([np.inf, *(_price(before, after) for before, after in pairwise(hull))]),
        np.array([r[1] for r in hull]),
        np.array([r[2] for r in hull]),
        np.array([r[3] for r in hull]),
    )


def _price(before: Row, after: Row) -> float:
    return (before[2] - after[2]) / max(after[1] - before[1], 1.0)
