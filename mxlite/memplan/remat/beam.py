"""Beam search: schedules of a small problem from the first stage to the last, for all budgets in parallel.

The cost of a stage follows from the sets of tasks held when it begins and when it ends (`stages.py`). So a
schedule is a path, stage by stage, through sets of held tasks. Among prefixes with equal sets only the
fastest counts, and none that holds less than another at no fewer seconds (dominance). Nothing is dropped as
long as it fits: only where a stage's steps need more than the budget, results are dropped one after the
other, each in every possible order, until they fit; or a task that reads a dropped result runs, to be held
instead.

    wish      hold all that is useful later        fits: a label of the next stage
    too much  drop a      drop b      drop c
    still     drop a, b   drop a, c   drop b, c    fits: labels of the next stage

A stage may have no room for everything that would be recomputed for it. So in the stage before, a task that
is read later may run too, with its recomputed inputs; where that is too much, results are dropped as above.
Some tasks then run three times and more.

A label (a partial schedule) ends when its time so far and a bound on the rest reach the time of the
frontier's point to be beaten. For each budget only a number of labels go on: those of the fewest seconds so
far and still to be run, with what is held priced by `prices.py`. Where all labels of a budget have ended,
others get its slots. The results leave gaps in bytes to the points around them, so these are searched once
more. B. T. Lowerre 1976, "The HARPY speech recognition system", introduced beam search.

Prefixes are lost where most is chosen at once: after the forward pass, where half a graph's results may
have to be dropped. But the points of a frontier, of all bytes, agree on much of it. So at the end there is a
search that chooses only what they do not agree on: what all of them hold at a stage is not dropped there, and
what none of them holds is not held. Far fewer choices are left, so labels may differ in more: two
tasks of a stage, each with its recomputed inputs, may run before they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .pool import CandidatePool, Point
from .prices import Prices
from .stages import any_of, MOST, Stages

Array = np.ndarray

LABELS = 2500  # of all budgets together that go on from one stage to the next
WIDEST, WIDER = 250, 4  # labels of one budget at first; the factor by which this grows when others have ended
BUDGETS = 64  # at most
NEAR = 8  # units of seconds that count as no difference
BELOW, SLOWEST = (0.98, 0.95, 0.92), 3  # of the least bytes known; seconds there, relative to that point
ROUNDS = 2  # searches, each to beat the points that the one before has left
LONG, LONGEST = 1_200_000, 2_000_000  # labels examined; beyond these, no second or last search
SOONER = 8  # one in so many labels that go on comes from tasks that run before they are read
EARLY = 2  # such tasks of one stage, where points of the frontier agree on all else
NEVER = 1 << 58  # units of seconds


class Labels:
    """Partial schedules, one in each column of `table`. Its rows say which `budget` it is for, the sets
    `held` when the last stage begins and `after` it, seconds `spent` before that stage and up to its end
    (`now`), and the label it extends (`origin`).
    """

    def __init__(self, table: Array) -> None:
        self.table = table
        self.budget, self.held, self.after, self.spent, self.now, self.origin = table

    def __len__(self) -> int:
        return len(self.budget)

    def __getitem__(self, some: Array | slice) -> Labels:
        if isinstance(some, slice):
            return Labels(self.table[:, some])
        return Labels(self.table.take(np.flatnonzero(some) if some.dtype == bool else some, axis=1))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Concatenation of several tables."""
        return cls(np.concatenate([p.table for p in parts], axis=1))


class Beam:
    """Searches of one problem, within `budgets` bytes each, for less than `upper` units of seconds. For each
    budget `width` labels go on, and more when others have ended. Of `known` schedules (schedules, stages + 1)
    in the form that `run` returns, what all hold is not dropped, and what none holds is not held.
    """

    def __init__(
        self,
        stages: Stages,
        budgets: Array,
        upper: Array,
        width: int,
        forced: int = 0,
        known: Array | None = None,
    ) -> None:
        self.stages, self.budgets, self.upper, self.width = stages, budgets, upper, width
        self.labels, self.widest = width * len(budgets), width * WIDER
        self.ever, self.always, self.early = stages.useful, [0] * len(stages.useful), 1
        if known is not None:
            self.ever = [e & u for e, u in zip(np.bitwise_or.reduce(known).tolist(), stages.useful)]
            self.always = np.bitwise_and.reduce(known).tolist()
            self.early = EARLY
        self.first = self.ever[0] & ~(forced & stages.free)
        self.prices = Prices(stages, budgets)
        self.looked_at = 0

    def run(self) -> dict[int, Array]:
        """The fastest schedule found for each budget that has one: the sets held when each stage begins, and
        after the last.
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
        """Labels for the sets held when the first stage begins."""
        stages = self.stages
        number = np.arange(len(self.budgets))
        zero = np.zeros(len(number), np.int64)
        labels = Labels(
            np.stack([number, zero, np.full(len(number), self.first, np.int64), zero, zero, zero])
        )
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
                labels = self._dropped(labels[~fits], (past | ends) & stages.free & ~self.always[0])
                labels = self._best(labels, 0, prices, self.width)
            if not done:
                return labels
            labels = self._best(Labels.joined(done), 0, prices, self.width)
        return labels

    def _stage(self, j: int, labels: Labels) -> Labels:
        """Labels after stage j that extend `labels`."""
        stages, useful = self.stages, self.ever[j + 1]
        if len(labels):
            self.width = min(self.labels // len(set(labels.budget.tolist())), self.widest)
        held = labels.after
        present = held | stages.missing(held, stages.asked[j])
        wish = present & useful
        labels = Labels(np.stack([labels.budget, held, wish, labels.now, labels.now, np.arange(len(labels))]))
        labels = self._costed(labels, j)
        # The inputs of the stage are live in any case.
        may = useful & stages.free & ~self.always[j + 1] & ~(stages.asked[j] & ~stages.own_donors[j])
        labels = self._fitting(labels, j, may, wish, self.width)
        if stages.asked[j + 1]:  # otherwise, recompute there instead
            some, done, sooner = self.width // SOONER, [labels], labels
            for _ in range(self.early):
                sooner = self._best(
                    self._costed(self._sooner(sooner, j), j), j + 1, self.prices.of(j + 1), some
                )
                sooner = self._fitting(sooner, j, may, np.full(len(held), useful), some)
                done.append(sooner)
            labels = Labels.joined(done)
        return self._best(labels, j + 1, self.prices.of(j + 1), self.width, final=True)

    def _fitting(self, labels: Labels, j: int, may: int, wish: Array, width: int) -> Labels:
        """Labels after stage j that fit, from `labels` and from those without some of the tasks in their
        `wish` that they `may` drop.
        """
        stages, prices, done = self.stages, self.prices.of(j), [labels[:0]]
        while len(labels):
            fits = stages.most_bytes(j, labels.held, labels.after) <= self.budgets[labels.budget]
            done.append(labels[fits])
            labels = self._dropped(labels[~fits], may, j, wish)
            labels = self._best(self._costed(labels, j), j + 1, prices, width)
        return self._best(Labels.joined(done), j + 1, self.prices.of(j + 1), self.width)

    def _dropped(self, labels: Labels, may: int, j: int = -1, wish: Array | None = None) -> Labels:
        """Each of `labels` without one of the tasks that it `may` drop, or with a reader of it instead."""
        stages = self.stages
        x = np.array([x for x in range(stages.number) if may >> x & 1], np.int64)
        mine = labels.after if wish is None else labels.after & wish[labels.origin]
        at, which = np.nonzero(mine[:, None] >> x & 1)
        after = labels.after[at] & ~(1 << x[which])
        rows, sets = [at], [after]
        if wish is not None:
            present = labels.held | stages.missing(labels.held, stages.asked[j])
            later = self.ever[j + 1]
            readers = np.array([stages.reader_sets[y] & later for y in x.tolist()], np.int64)
            lacking = readers[which] & ~(present[at] | after)
            some = np.flatnonzero(lacking)
            each, u = np.nonzero(lacking[some, None] >> np.arange(stages.number) & 1)
            rows.append(at[some[each]])
            sets.append(after[some[each]] | 1 << u)
        return self._changed(labels, rows, sets)

    def _sooner(self, labels: Labels, j: int) -> Labels:
        """Each of `labels` with one more task that runs early, and with all that is recomputed for that."""
        stages, rows, sets = self.stages, [], []
        useful = self.ever[j + 1]
        there = labels.after | labels.held | stages.missing(labels.held, stages.asked[j] | labels.after)
        for u in range(stages.number):
            if stages.free & stages.later[j + 1] >> u & 1:
                some = np.flatnonzero(labels.after >> u & 1 == 0)
                if len(some):
                    rows.append(some)
                    sets.append((labels.after[some] | stages.missing(there[some], 1 << u) | 1 << u) & useful)
        return self._changed(labels, rows, sets)

    @staticmethod
    def _changed(labels: Labels, rows: Sequence[Array], sets: Sequence[Array]) -> Labels:
        if not rows:
            return labels[:0]
        found = labels[np.concatenate(rows)]
        found.after[:] = np.concatenate(sets)
        return found

    def _costed(self, labels: Labels, j: int) -> Labels:
        """`labels` with the seconds of stage j, without those that would run a forbidden task."""
        stages = self.stages
        again = stages.missing(labels.held, stages.asked[j] | labels.after)
        labels.now[:] = labels.spent + stages.cost(again)
        return labels[(again & ~stages.allowed[j]) == 0]

    def _best(self, labels: Labels, j: int, price: Array, width: int, final: bool = False) -> Labels:
        """The labels of each budget that go on, with stages from j still to come."""
        self.looked_at += len(labels)
        labels, total = self._hopeful(labels, j, price)
        some = self._ranked(labels, total, 2 * width if final else width)
        if final:
            some = some[self._undominated(labels[some])]
            some = some[self._ranked(labels[some], total[some], width)]
        return labels[some]

    def _hopeful(self, labels: Labels, j: int, price: Array) -> tuple[Labels, Array]:
        """Labels that can still beat their budget's seconds, and their totals with what is held priced in."""
        stages = self.stages
        missing = stages.missing(labels.after, stages.later[j])
        total = labels.now + stages.cost(missing)
        use = ((missing & ~stages.free) == 0) & (total < self.upper[labels.budget])
        labels, missing, total = labels[use], missing[use], total[use]
        held = labels.after & (stages.later[j] | stages.read_by(missing))
        some = np.flatnonzero(price.any(axis=0) & (any_of(held) >> np.arange(stages.number) & 1 == 1))
        total += np.einsum("ij,ij->i", held[:, None] >> some & 1, price[:, some][labels.budget])
        return labels, total

    def _ranked(self, labels: Labels, total: Array, width: int) -> Array:
        """The `width` labels of the least `total` for each budget, each set and seconds once."""
        order = np.lexsort((labels.after, total, labels.budget))
        fresh = np.arange(len(order)) == 0
        for key in (labels.budget, total, labels.after):
            ranked = key[order]
            fresh[1:] |= ranked[1:] != ranked[:-1]
        order = order[fresh]
        budget = labels.budget[order]
        first: Array = order[np.arange(len(order)) - np.searchsorted(budget, budget) < width]
        return first

    def _undominated(self, labels: Labels) -> Array:
        """True where no label of the same budget holds more at no more seconds; they are sorted by budget."""
        if not len(labels):
            return np.zeros(0, bool)
        rank = np.arange(len(labels)) - np.searchsorted(labels.budget, labels.budget)
        budget = np.cumsum(rank == 0) - 1
        shape = int(budget[-1]) + 1, int(rank.max()) + 1
        after, now = np.zeros(shape, np.int64), np.full(shape, NEVER)
        at = budget, rank
        after[at], now[at] = labels.after, labels.now
        more = (after[:, :, None] & ~after[:, None]) == 0
        equal = (after[:, :, None] == after[:, None]) & (now[:, :, None] == now[:, None])
        earlier = np.arange(shape[1]) < np.arange(shape[1])[:, None]
        beaten = more & (now[:, None] <= now[:, :, None]) & (~equal | earlier)
        found: Array = ~beaten.any(axis=2)[at]
        return found


def beam(pool: CandidatePool) -> None:
    """Search for schedules that beat the points of the frontier, each within the bytes up to the next larger
    one's, and for some below the least of them.
    """
    problem = pool.problem
    if not pool.evaluator.runs_by_stage or problem.num_forward > MOST or len(pool.points) < 2:
        return
    stages = Stages(problem, pool.evaluator.profiles)
    forced = sum(1 << u for u in np.flatnonzero(pool.forced).tolist())
    done: set[tuple[int, int]] = set()
    looked_at = 0
    for _ in range(ROUNDS):
        todo = [way for way in _budgets(pool.points, stages.unit) if way not in done]
        done.update(todo)
        if not todo:
            break
        found, number = _search(pool, stages, todo, forced)
        looked_at += number
        if not found or looked_at > LONG:
            break
    if looked_at <= LONGEST:
        known = pool.states([p for p in pool.points if p.array.min(initial=0) >= 0])
        _search(pool, stages, _budgets(pool.points, stages.unit), forced, pool.holds.sets(known))


def _search(
    pool: CandidatePool,
    stages: Stages,
    todo: Sequence[tuple[int, int]],
    forced: int,
    known: Array | None = None,
) -> tuple[bool, int]:
    """Run the search `todo` of `_budgets`; return True if there is anything, and the labels examined."""
    budgets, upper = np.array(todo, np.int64).T
    search = Beam(stages, budgets, upper, min(WIDEST, LABELS // len(budgets)), forced, known)
    found = search.run()
    if found:
        pool.held("beam", pool.holds.of_sets(np.stack([*found.values()])))
    return bool(found), search.looked_at


def _budgets(points: Sequence[Point], unit: float) -> list[tuple[int, int]]:
    """(budget, units of seconds to beat) of the points, and below the least."""
    some = [i for i, p in enumerate(points) if i and p.array.min(initial=0) >= 0]
    some = [some[k * len(some) // BUDGETS] for k in range(BUDGETS)] if len(some) > BUDGETS else some
    found = [(points[i - 1].live_bytes - 1, round(points[i].seconds / unit) - NEAR) for i in some]
    least = points[-1]
    found += [(int(least.live_bytes * share), round(SLOWEST * least.seconds / unit)) for share in BELOW]
    return [*dict.fromkeys(found)]
