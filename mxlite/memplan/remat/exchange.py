"""Sets of changes: one gains time and others pay for it in bytes.

A point of a frontier that no single change improves may still be far from the best: keeping one more result,
or longer, would save time and needs room that dropping two others would free. All pairs and triples are too
many to be costed. But the effect of a single change on the live bytes, stage by stage, is known once it was
costed, and several together have nearly the sum of their effects. So sets of changes are built on these sums,

    live bytes   point         ___/^^^\\__       start from any gain; while a stage has more than is
    + a gain                   ___/^^^^^\\_      allowed, add what takes away the most of the excess
    + what it is paid with     __/^^^^\\___      for its seconds; then add gains that fit, the greatest first

and only those that promise to beat the point are costed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..compiled import compiled, Ints
from .pool import CandidatePool, Point
from .schedule import Runs

REPAIRS, FILLS = 4, 4  # changes that pay for one gain, and gains that fit after that, at most
GAINS, PRICES = 64, 96  # single changes of each kind that sets are built from, at most
LEAST = 6  # visits of each task for each of `places`, about two for each point
NOTHING = 1e-9  # of the largest price; smaller sums count as zero
SPREAD = 16  # points of a frontier that are moved on from before it is examined anew


def exchange(pool: CandidatePool, limit: int) -> None:
    """Move on from the points of the frontier by sets of changes until nothing new is found, or `limit`
    visits are done.
    """
    if not pool.evaluator.runs_by_stage:
        return
    if not len(pool.holds.free) or limit < LEAST * len(pool.holds.free) * len(pool.problem.tasks):
        return  # not enough for a few points
    end = pool.visits + limit
    done: set[bytes | Runs] = set()
    while pool.visits < end:
        todo = [i for i, p in enumerate(pool.points) if p.key not in done and p.array.min() >= 0]
        if not todo:
            return
        points = pool.points
        for i in todo[:: max(1, len(todo) // SPREAD)]:
            done.add(points[i].key)
            _around(pool, points[i], points[i - 1].live_bytes - 1 if i else points[i].live_bytes)
            if pool.visits >= end:
                return


def _around(pool: CandidatePool, point: Point, more: int) -> None:
    """Cost the single changes of a point, and sets of them for its bytes and for `more` bytes."""
    method = point.method if point.method.endswith("exchanged") else f"{point.method}, exchanged"
    state = pool.states([point])
    changes = pool.holds.changes(state)
    if not len(changes):  # a network so small that nothing can be dropped
        return
    first = np.concatenate([[0], changes.first])  # the point itself, then each change
    live, seconds = pool.changed(method, state, first, changes.spans)
    at = changes.ways[:, 0]
    change, price = live[1:] - live[0], seconds[1:] - seconds[0]
    sets = [_sets(live[0] - b, change, price, at) for b in dict.fromkeys((point.live_bytes, more))]
    both = np.concatenate(sets)
    once = {row.tobytes(): i for i, row in enumerate(np.packbits(both, axis=1))}
    chosen = both[[once[key] for key in sorted(once)]]
    if len(chosen):
        pool.changed(method, state, *changes.sets(chosen))


def _sets(over: np.ndarray, change: np.ndarray, price: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Sets (sets, changes), as booleans, that seem to save time within the bytes allowed.

    Stages exceed the allowance by `over` bytes (negative: room), `change` (changes, stages) is added by each
    change, `price` its seconds, `at` the task that it is for; a set has at most one change for each task.
    """
    gains = np.argsort(price, kind="stable")[: min(GAINS, int((price < 0).sum()))]
    # Payments that free the most bytes, over all stages, for a second.
    costs = np.flatnonzero(price > 0)
    worth = -np.minimum(change[costs], 0).sum(axis=1) / price[costs]
    costs = costs[np.argsort(-worth, kind="stable")[:PRICES]]
    none = np.zeros((0, len(price)), bool)
    if not len(gains) or not len(costs):
        return none
    # Stages that stay within the bytes whatever happens need not be examined.
    tight = over + 2 * np.maximum(change[gains].max(axis=0), change[costs].max(axis=0)).clip(0) > 0
    over, change = over[tight], change[:, tight]
    found = []
    for seeds in (gains, costs):
        sets = _Sets(over, change, price, at, seeds)
        sets.pay(costs)
        sets.keep_allowed()
        found.append(sets.chosen)
        for _ in range(FILLS):
            if not sets.gain(gains):
                break
            found.append(sets.chosen)
    every = np.concatenate(found)
    # Sums are not rounded alike on all machines, so tiny ones count as zero.
    saves: np.ndarray = every @ price < -NOTHING * np.abs(price).max()
    use = saves & (every.sum(axis=1) > 1)
    return np.asarray(every[use])


class _Sets:
    """Sets that grow side by side, each from one change of `seeds`; `excess` bytes of each stage."""

    def __init__(
        self, over: np.ndarray, change: np.ndarray, price: np.ndarray, at: np.ndarray, seeds: np.ndarray
    ) -> None:
        self.change, self.price, self.at = change, price, at
        self.chosen = np.zeros((len(seeds), len(price)), bool)
        self.chosen[np.arange(len(seeds)), seeds] = True
        self.taken = at[seeds][:, None] == at
        self.excess = over + change[seeds]

    def pay(self, costs: np.ndarray) -> None:
        """Add to each set with a stage in excess the change that removes the most excess for a second."""
        change, price = self.change[costs], self.price[costs]
        for _ in range(REPAIRS):
            rows = np.flatnonzero((self.excess > 0).any(axis=1))
            if not len(rows):
                return
            excess = self.excess[rows]
            rate = (np.maximum(excess, 0).sum(axis=1)[:, None] - above(excess, change)) / price
            rate[self.taken[rows][:, costs]] = 0
            best = rate.argmax(axis=1)
            some = rate[np.arange(len(rows)), best] > 0
            self._add(rows[some], costs[best[some]])

    def gain(self, gains: np.ndarray) -> bool:
        """Keep the sets that a gain fits into, with the largest one added; True if there are any."""
        change, price = self.change[gains], self.price[gains]
        possible = fits(self.excess, change) & ~self.taken[:, gains]
        rows = np.flatnonzero(possible.any(axis=1))
        best = np.where(possible[rows], price, 0.0).argmin(axis=1)
        self._select(rows)
        self._add(np.arange(len(rows)), gains[best])
        return len(rows) > 0

    def keep_allowed(self) -> None:
        """Keep the sets that have no stage in excess."""
        self._select(np.flatnonzero((self.excess <= 0).all(axis=1)))

    def _select(self, rows: np.ndarray) -> None:
        self.chosen, self.taken, self.excess = self.chosen[rows], self.taken[rows], self.excess[rows]

    def _add(self, rows: np.ndarray, changes: np.ndarray) -> None:
        self.chosen[rows, changes] = True
        self.taken[rows] |= self.at[changes][:, None] == self.at
        self.excess[rows] += self.change[changes]


# Excess over an allowance that changes leave, for many pairs of rows. With llvmlite the loop is machine code,
# otherwise numpy computes the same: all numbers are integers.


Array = np.ndarray


def sums_above(
    rows: int, columns: int, width: int, excess: Ints, change: Ints, enough: int, above: Ints
) -> int:
    """Fill above[rows, columns]: the sum of the positive parts of a row of `excess` plus a row of `change`;
    for sums above `enough`, only a part of the sum.
    """
    i = 0
    while i < rows:
        j = 0
        while j < columns:
            total = 0
            k = 0
            while k < width and total <= enough:
                # In parts, so that a sum that is large enough stops early.
                end = k + 16
                if end > width:
                    end = width
                while k < end:
                    both = excess[i * width + k] + change[j * width + k]
                    if both > 0:
                        total += both
                    k += 1
            above[i * columns + j] = total
            j += 1
        i += 1
    return 0


@cache
def machine_code() -> Callable[..., int] | None:
    """`sums_above` as machine code, compiled once; None without llvmlite."""
    return compiled([sums_above])


def above(excess: Array, change: Array) -> Array:
    """(rows, changes): the sum of positive parts when a change is added to a row, over all places."""
    return _sums(excess, change, 1 << 62)


def fits(excess: Array, change: Array) -> Array:
    """(rows, changes): True where no positive part is left."""
    return np.asarray(_sums(excess, change, 0) == 0)


def _sums(excess: Array, change: Array, enough: int) -> Array:
    call = machine_code()
    if call is None:
        return np.asarray(np.maximum(excess[:, None] + change, 0).sum(axis=2))
    found = np.empty((len(excess), len(change)), np.int64)
    call(*found.shape, excess.shape[1], *map(np.ascontiguousarray, (excess, change)), enough, found)
    return found
