"""Beam search: schedules of a small problem from the first stage to the last, for all budgets side by side.

What a stage costs follows from what is held when it begins and when it ends (`stages.py`). So a schedule is a
path, stage by stage, through sets of held tasks. Of all beginnings with equal sets only the fastest counts,
and none that holds less than another at no fewer seconds. Nothing is dropped as long as it fits: only where a
stage's steps need more than the budget, results are dropped one after the other, each in all ways, until they
do; or a task runs that reads what is dropped, to be held instead.

    wish      hold all that is useful later        fits: a label of the next stage
    too much  drop a      drop b      drop c
    still     drop a, b   drop a, c   drop b, c    fits: labels of the next stage

A later stage may have no room for all that would run again for it, so a few tasks may also run before they
are read. A label ends when it and what it must still run take as long as the point of the frontier that is to
be beaten. Of each budget only a number of labels go on: those of the fewest seconds so far and still to be
run, with what is held counted at `prices.py`. B. T. Lowerre 1976, "The HARPY speech recognition system", is
where beams come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .pool import Pool
from .prices import Prices
from .stages import MOST, Stages

Array = np.ndarray

LABELS = 4000  # of all budgets together that go on from one stage to the next
BUDGETS = 64  # at most
NEAR = 8  # units of seconds that count as nothing
BELOW, SLOWEST = (0.98, 0.95, 0.92), 3  # of the least bytes known; seconds there, of those of that point
SOONER = 3  # tasks that a label may run in one stage before they are read
NEVER = 1 << 58  # units of seconds


@dataclass(frozen=True, slots=True)
class Labels:
    """Beginnings of schedules, one in each row: which `budget` it is for, what is `held` when the last stage
    begins and `after` it, seconds `spent` before that stage and up to its end, and of which label it is
    (`origin`).
    """

    budget: Array
    held: Array
    after: Array
    spent: Array
    now: Array
    origin: Array

    def __len__(self) -> int:
        return len(self.budget)

    def __getitem__(self, some: Array | slice) -> Labels:
        return Labels(*(getattr(self, name)[some] for name in self.__slots__))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__slots__))


class Beam:
    """Searches of one problem, within `budgets` bytes each, for less than `upper` units of seconds."""

    def __init__(self, stages: Stages, budgets: Array, upper: Array, width: int, forced: int = 0) -> None:
        self.stages, self.budgets, self.upper, self.width = stages, budgets, upper, width
        self.first = stages.useful[0] & ~(forced & stages.free)
        self.prices = Prices(stages, budgets)

    def run(self) -> dict[int, Array]:
        """Of each budget for which there is one the fastest schedule found: what is held when each stage
        begins, and behind the last.
        """
        labels = self._forward()
        trail = [labels]
        for j in range(self.stages.stages):
            if not len(labels):
                return {}
            labels = self._stage(j, labels)
            trail.append(labels)
        found: dict[int, Array] = {}
        for at in np.lexsort((labels.now, labels.budget)).tolist():
            budget = int(labels.budget[at])
            if budget not in found:
                row, i = np.zeros(len(trail), np.int64), at
                for j in reversed(range(len(trail))):
                    row[j], i = trail[j].after[i], int(trail[j].origin[i])
                found[budget] = row
        return found

    def _forward(self) -> Labels:
        """What is held when the first stage begins."""
        stages = self.stages
        number = np.arange(len(self.budgets))
        zero = np.zeros(len(number), np.int64)
        labels = Labels(number, zero, np.full(len(number), self.first, np.int64), zero, zero, zero)
        prices = self.prices.of(0)
        for u in range(stages.number):
            nbytes, past = stages.forward_bytes(u)
            ends = sum(1 << x for x in range(u) if stages.last[x] == u) & stages.donors[u]
            done = []
            while len(labels):
                after = labels.after
                live = nbytes + stages.bytes[0](after & past) - ((ends & ~after) != 0) * stages.saved[u]
                fits = live <= self.budgets[labels.budget]
                done.append(labels[fits])
                labels = self._dropped(labels[~fits], (past | ends) & stages.free)
                labels = self._best(labels, 0, prices)
            if not done:
                return labels
            labels = self._best(Labels.joined(done), 0, prices)
        return labels

    def _stage(self, j: int, labels: Labels) -> Labels:
        """The labels behind stage j that go on from `labels`."""
        stages, useful = self.stages, self.stages.useful[j + 1]
        held = labels.after
        present = held | stages.missing(held, stages.asked[j])
        wish = present & useful
        labels = Labels(labels.budget, held, wish, labels.now, labels.now, np.arange(len(labels)))
        labels = self._costed(labels, j)
        prices = self.prices.of(j)
        # What the stage reads is there in any case.
        may = useful & stages.free & ~(stages.asked[j] & ~stages.own_donors[j])
        done = []
        while len(labels):
            fits = stages.most_bytes(j, labels.held, labels.after) <= self.budgets[labels.budget]
            done.append(labels[fits])
            labels = self._dropped(labels[~fits], may, j, wish)
            labels = self._best(self._costed(labels, j), j + 1, prices)
        if not done:
            return labels
        prices = self.prices.of(j + 1)
        labels = self._best(Labels.joined(done), j + 1, prices)
        done = [labels]
        for _ in range(SOONER):
            labels = self._costed(self._sooner(labels, j), j)
            fits = stages.most_bytes(j, labels.held, labels.after) <= self.budgets[labels.budget]
            labels = self._best(labels[fits], j + 1, prices)
            done.append(labels)
            if not len(labels):
                break
        return self._best(Labels.joined(done), j + 1, prices, final=True)

    def _dropped(self, labels: Labels, may: int, j: int = -1, wish: Array | None = None) -> Labels:
        """Each of `labels` without one of the tasks that it `may` do without, or with a reader instead."""
        stages, rows, sets = self.stages, [], []
        present = labels.held | stages.missing(labels.held, stages.asked[j] if j >= 0 else 0)
        for x in range(stages.number):
            if may >> x & 1:
                at = np.flatnonzero(labels.after >> x & 1)
                after = labels.after[at] & ~(1 << x)
                if wish is None:
                    rows.append(at)
                    sets.append(after)
                    continue
                kept = wish[labels.origin[at]] >> x & 1 == 1
                rows.append(at[kept])
                sets.append(after[kept])
                for u in stages.readers[x]:
                    if stages.useful[j + 1] >> u & 1:
                        some = np.flatnonzero((present[at] | after) >> u & 1 == 0)
                        rows.append(at[some])
                        sets.append(after[some] | 1 << u)
        return self._changed(labels, rows, sets)

    def _sooner(self, labels: Labels, j: int) -> Labels:
        """Each of `labels` with one task more that runs before it is read: one whose inputs are there."""
        stages, rows, sets = self.stages, [], []
        there = labels.after | labels.held | stages.missing(labels.held, stages.asked[j])
        wanted = stages.missing(labels.after, stages.later[j + 1]) & ~there
        for u in range(stages.number):
            if stages.free & stages.useful[j + 1] >> u & 1:
                some = np.flatnonzero((wanted >> u & 1 == 1) & (stages.reads[u] & ~there == 0))
                rows.append(some)
                sets.append(labels.after[some] | 1 << u)
        return self._changed(labels, rows, sets)

    @staticmethod
    def _changed(labels: Labels, rows: Sequence[Array], sets: Sequence[Array]) -> Labels:
        if not rows:
            return labels[:0]
        found, after = labels[np.concatenate(rows)], np.concatenate(sets)
        return Labels(found.budget, found.held, after, found.spent, found.now, found.origin)

    def _costed(self, labels: Labels, j: int) -> Labels:
        """With the seconds of stage j; without those that would run what may not."""
        stages = self.stages
        again = stages.missing(labels.held, stages.asked[j] | labels.after)
        now = labels.spent + stages.cost(again)
        labels = Labels(labels.budget, labels.held, labels.after, labels.spent, now, labels.origin)
        return labels[(again & ~stages.allowed[j]) == 0]

    def _best(self, labels: Labels, j: int, price: Array, final: bool = False) -> Labels:
        """Of each budget the labels that go on, where stages from j on are still to come."""
        stages = self.stages
        missing = stages.missing(labels.after, stages.later[j])
        total = labels.now + stages.cost(missing)
        use = ((missing & ~stages.free) == 0) & (total < self.upper[labels.budget])
        labels, missing, total = labels[use], missing[use], total[use]
        needed = stages.later[j] | stages.read_by(missing)
        bits = (labels.after & needed)[:, None] >> np.arange(stages.number) & 1
        total += (bits * price[labels.budget]).sum(axis=1)
        some = self._ranked(labels, total, 2 * self.width if final else self.width)
        if final:
            some = some[self._undominated(labels[some])]
            some = some[self._ranked(labels[some], total[some], self.width)]
        return labels[some]

    def _ranked(self, labels: Labels, total: Array, width: int) -> Array:
        """Of each budget the `width` labels of the least `total`, each set and seconds once."""
        order = np.lexsort((labels.after, total, labels.budget))
        keys = np.stack([labels.budget, total, labels.after])[:, order]
        order = order[(np.diff(keys, axis=1, prepend=-1) != 0).any(axis=0)]
        budget = labels.budget[order]
        first: Array = order[np.arange(len(order)) - np.searchsorted(budget, budget) < width]
        return first

    def _undominated(self, labels: Labels) -> Array:
        """Whether no label of the same budget holds more at no more seconds; they are in order of budgets."""
        if not len(labels):
            return np.zeros(0, bool)
        rank = np.arange(len(labels)) - np.searchsorted(labels.budget, labels.budget)
        shape = len(self.budgets), int(rank.max()) + 1
        after, now = np.zeros(shape, np.int64), np.full(shape, NEVER)
        at = labels.budget, rank
        after[at], now[at] = labels.after, labels.now
        more = (after[:, :, None] & ~after[:, None]) == 0
        equal = (after[:, :, None] == after[:, None]) & (now[:, :, None] == now[:, None])
        earlier = np.arange(shape[1]) < np.arange(shape[1])[:, None]
        beaten = more & (now[:, None] <= now[:, :, None]) & (~equal | earlier)
        found: Array = ~beaten.any(axis=2)[at]
        return found


def beam(pool: Pool) -> None:
    """Search for what beats the points of the frontier, each within the bytes up to the next larger one's,
    and for what lies below the least of them.
    """
    problem = pool.problem
    if not pool.evaluator.runs_by_stage or problem.num_forward > MOST or len(pool.points) < 2:
        return
    stages = Stages(problem, pool.evaluator.profiles)
    points = pool.points
    some = [i for i, p in enumerate(points) if i and p.array.min(initial=0) >= 0]
    some = [some[k * len(some) // BUDGETS] for k in range(BUDGETS)] if len(some) > BUDGETS else some
    budgets = [points[i - 1].live_bytes - 1 for i in some]
    upper = [round(points[i].seconds / stages.unit) - NEAR for i in some]
    for share in BELOW:
        budgets.append(int(points[-1].live_bytes * share))
        upper.append(round(SLOWEST * points[-1].seconds / stages.unit))
    forced = sum(1 << u for u in np.flatnonzero(pool.forced).tolist())
    width = LABELS // len(budgets)
    found = Beam(stages, np.array(budgets, np.int64), np.array(upper, np.int64), width, forced).run()
    if found:
        pool.held("beam", pool.holds.of_sets(np.stack([*found.values()])))
