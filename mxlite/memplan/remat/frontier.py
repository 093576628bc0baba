"""Pareto frontier: the plans that no other candidate beats in both bytes and time, for every budget at once.

The candidates do not depend on the budget. A budget gets the fastest of them whose *placed* arena
fits. So a larger budget, which all the same candidates fit and perhaps more, never gets a slower plan; and
the least budget that works is the smallest placed arena.
"""

from __future__ import annotations

import itertools
from math import inf

import numpy as np

from ..cost.forms import FormChoice
from ..plan import make_plan, MemoryPlan
from ..problem import Problem
from . import offload, split
from .anneal import anneal, anneal_counts, FEW
from .beam import beam
from .blocks import Blocks
from .chain import Chain, counts_of, filled, Table
from .deep import Deep
from .exchange import exchange
from .improve import improve
from .pool import CandidatePool, Point
from .squeeze import squeeze

FRACTIONS = 16  # partial dropping is tried in sixteenths
WIDEST = 8  # values that cross a cut within a block
FINE = 500  # cuts of that kind up to which the chain programme considers them all
FINEST = 1500  # and which the recursion considers
MOST = 600  # cuts between blocks that the programmes consider; longer chains are coarsened
DEEPEST = 16  # mirror count
DEEP_SCALES = ((0.3, 64, 1), (0.08, 128, 3), (0.02, 128, 2), (0.005, 64, 1))
"""Scales of the recursion: the largest budget that one table serves (each down to a quarter), as a share of
keeping all; the places between which it chooses; and a factor for the number of its budgets."""
DEEP_RUNGS = 60  # budgets of each scale that the recursion is asked for
DEEP_VISITS = 80_000  # and tasks of the schedules made for them, about
RUNGS = 1.02  # ratio of the budgets that the chain programme is asked for


# Visits of the search for better choices: by tasks squared for a small problem, else a base plus a number for
# each task, between bounds. The searches are: single changes of counts, annealing of counts and of what is
# held, search below the least bytes, sets of changes. Changing what is held costs more work than changing
# counts, and more for more tasks: fewer visits.
SMALL_VISITS, VISITS, MORE_VISITS = 300, 3_000_000, 300
COUNTED, MOST_COUNTED, MORE_COUNTED = 150, (1_000_000, 2_000_000), 4400
ANNEALED, MOST_ANNEALED, MORE_ANNEALED = 300, (1_000_000, 3_500_000), 240_000_000
TIMES = 8  # restarts of annealing of what is held, for up to FEW tasks
SQUEEZED, MORE_SQUEEZED, LESS_SQUEEZED = (2_000_000, 6_000_000), 5000, (400_000, 12_000_000_000)
EXCHANGED, MOST_EXCHANGED, MORE_EXCHANGED = 1500, 1_000_000, 85_000_000


class Frontier:
    """The plans of one problem. `points` ascend in recompute time and fall in bytes before placing.

    If kernels may have fewer threads, points are those of the leanest problem, and a point stands for the
    plans with its schedule: each takes longer than the point says by the time that its kernels lose for lack
    of threads.
    """

    def __init__(self, problem: Problem, strategy: str, points: tuple[Point, ...]) -> None:
        self.problem = problem
        self.strategy = strategy
        self.points = points
        self._forms = FormChoice(problem, strategy) if problem.has_forms else None
        self._placed: dict[int, int] = {}
        self._least: tuple[int, MemoryPlan] | None = None  # cached: it is often asked for next

    def at(self, arena_budget: int) -> MemoryPlan | None:
        """The fastest plan whose placed arena is within `arena_budget` bytes; None if there is none."""
        if self.problem.least_arena > arena_budget:
            return None
        if self._forms is not None:
            return self._in_forms(arena_budget, self._forms)
        for i, point in enumerate(self.points):
            if point.live_bytes <= arena_budget and self._placed.get(i, 0) <= arena_budget:
                plan = self.plan(i)
                if plan.placed_bytes <= arena_budget:
                    return plan
        return None

    def _in_forms(self, arena_budget: int, forms: FormChoice) -> MemoryPlan | None:
        """`at`, where points also differ in the time that kernels lose for lack of threads."""
        best: MemoryPlan | None = None
        quickest = inf
        for i, point in enumerate(self.points):
            if point.seconds >= quickest:
                break
            if max(point.live_bytes, self._placed.get(i, 0)) > arena_budget:
                continue
            if point.seconds + forms.within(i, point, arena_budget)[0] >= quickest:
                continue
            plan = forms.plan(i, point, arena_budget)
            if plan is None:
                self._placed[i] = max(self._placed.get(i, 0), arena_budget + 1)
                continue
            seconds = plan.problem.step_seconds - self.problem.step_seconds + plan.schedule.extra_seconds
            if seconds < quickest:
                best, quickest = plan, seconds
        return best

    def least(self) -> MemoryPlan:
        """The plan with the smallest placed arena; among equals the fastest."""
        best: MemoryPlan | None = None
        for i in reversed(range(len(self.points))):
            if best is not None and self.points[i].live_bytes > best.placed_bytes:
                break
            plan = self.smallest(i)
            if best is None or plan.placed_bytes <= best.placed_bytes:
                best, at = plan, i
        assert best is not None
        best = self._quickest(at, best)
        self._least = at, best
        if best.placed_bytes < self.problem.least_arena:
            return self.at(self.problem.least_arena) or best
        return best

    @property
    def least_possible(self) -> int:
        """Bytes that each of the plans owns at least: those of `least` are found by placing."""
        return self.problem.fixed_total + self.points[-1].live_bytes

    def last_within(self, seconds: float) -> int | None:
        """The number of the smallest of the points with at most `seconds` extra; None if all have more."""
        found = [i for i, p in enumerate(self.points) if p.seconds <= seconds]
        return found[-1] if found else None

    def plan(self, i: int) -> MemoryPlan:
        """Point i, placed; if kernels may have fewer threads, in the fewest bytes."""
        least = self._least  # another thread may replace it
        if least is not None and least[0] == i:
            return least[1]
        return self._quickest(i, self.smallest(i))

    def smallest(self, i: int) -> MemoryPlan:
        """Point i, placed, in the fewest bytes."""
        point, strategy = self.points[i], self.strategy
        if self._forms is not None:
            plan = self._forms.least(point)
        else:
            plan = make_plan(
                self.problem, point.choice, strategy=strategy, method=point.method, room=point.room
            )
        self._placed[i] = plan.placed_bytes
        return plan

    def _quickest(self, i: int, smallest: MemoryPlan) -> MemoryPlan:
        """Point i within the bytes of its smallest plan: with as many threads as these bytes allow."""
        if self._forms is None:
            return smallest
        return self._forms.plan(i, self.points[i], smallest.placed_bytes) or smallest


def frontier(problem: Problem, strategy: str = "sharing") -> Frontier:
    """The frontier of `problem`, from recomputing nothing to the least bytes known. Deterministic."""
    whole, problem = problem, problem.leanest
    pool = CandidatePool(problem, strategy)
    n = problem.num_forward
    pool.add(split.keeping(problem), np.zeros((1, n), np.int64))
    # Recomputation only adds values, so it is useless where values share no bytes, or forward is all.
    if strategy == "sharing" and 0 < n < len(problem.tasks) and pool.points[0].live_bytes:
        cuts = split.find_cuts(problem)
        _schemes(pool, cuts)
        coarse = Chain(Blocks(split.thinned(cuts, MOST)))
        fine = Chain(Blocks(split.thinned(split.find_cuts(problem, WIDEST), FINEST)))
        _stretches(pool, coarse)
        if fine.blocks.num <= FINE and fine.blocks.begin != coarse.blocks.begin:
            _stretches(pool, fine)
        _levels(pool, cuts, fine)
        _search_counts(pool, np.array(cuts.order, np.int64))
        counted = list(pool.points)
        _search_runs(pool)
        if problem.host is not None:
            offload.extend(pool, counted)
    return Frontier(whole, strategy, tuple(pool.points))


def _search_counts(pool: CandidatePool, places: np.ndarray) -> None:
    """Search mirror counts around those of the current points."""
    number = len(pool.problem.tasks)
    improve(pool, places, min(SMALL_VISITS * number**2, VISITS + MORE_VISITS * number))
    low, high = MOST_COUNTED
    anneal_counts(pool, places, min(COUNTED * number**2, max(low, min(high, MORE_COUNTED * number))))


def _search_runs(pool: CandidatePool) -> None:
    """Search what is held, around the current points."""
    number = len(pool.problem.tasks)
    low, high = MOST_ANNEALED
    limit = min(ANNEALED * number**2, max(low, min(high, MORE_ANNEALED // number)))
    for seed in range(1, 1 + (TIMES if number <= FEW else 1)):
        anneal(pool, limit, seed)
    (fewest, most), (least, shared) = SQUEEZED, LESS_SQUEEZED
    squeeze(pool, min(max(fewest, min(most, MORE_SQUEEZED * number)), max(least, shared // number)))
    exchange(pool, max(EXCHANGED * number, min(MOST_EXCHANGED, MORE_EXCHANGED // number)))
    if number <= FEW:
        beam(pool)


def _schemes(pool: CandidatePool, cuts: split.Cuts) -> None:
    """Add the thesis's segments, a grid of strides and fractions, and recursion."""
    problem = pool.problem
    found: list[tuple[str, list[int]]] = [("drop cheap results", split.cheap(problem))]
    for s in (0, *split.strides(cuts)) if cuts.at else (0,):
        name = f"keep 1 cut in {s}, drop" if s else "drop"
        for f in range(1, FRACTIONS + 1):
            found.append((f"{name} {f}/{FRACTIONS}", split.partial(cuts, s, f / FRACTIONS)))
    total = split.total_bytes(problem)
    if cuts.at:
        found += [(f"segments of 1/{2**i}", split.by_bytes(cuts, total >> i)) for i in range(1, 9)]
    for levels in (2, 3, 4):
        for radix in (2, 3, 4, 6, 8, 12, 16):
            if radix**levels <= 4 * len(cuts.at):
                found.append((f"{levels} levels of {radix}", split.nested(cuts, radix, levels)))
    pool.add([name for name, _ in found], np.array([counts for _, counts in found]))


def _stretches(pool: CandidatePool, chain: Chain) -> None:
    """Add the chain programme's results for a ladder of budgets between the least and keeping everything."""
    most = float(pool.points[0].live_bytes)
    for limit, twice in ((most, False), (most * 0.2, True)):
        budgets = [limit]
        while budgets[-1] > limit * 0.19:
            budgets.append(budgets[-1] / RUNGS)
        names, rows = [], []
        found = Table(chain, limit, twice=twice).walk(budgets[:-1])
        for budget, stretches in zip(budgets, itertools.takewhile(lambda s: s is not None, found)):
            assert stretches is not None
            names.append(f"{len(stretches)} stretches")
            rows.append(counts_of(chain, stretches, filled(chain, stretches, budget)))
        if rows:
            pool.add(names, np.array(rows))


def _levels(pool: CandidatePool, cuts: split.Cuts, chain: Chain) -> None:
    """Add the recursion's results for a ladder of budgets, down to the least it can work with."""
    most = float(pool.points[0].live_bytes)
    among = sorted(
        {0, chain.blocks.num, *(c + 1 for c, t in enumerate(chain.blocks.cuts.at) if t in set(cuts.at))}
    )
    few = max(12, DEEP_VISITS // len(pool.problem.tasks))
    for share, places, dense in DEEP_SCALES:
        rungs = min(DEEP_RUNGS, dense * few)
        deep = Deep(chain, share * most, among, places)
        names, rows = [], []
        for i in range(rungs):
            counts = deep.counts(share * most * 0.25 ** (i / rungs))
            if counts is None or counts.max() > DEEPEST:
                break
            names.append(f"recursion of depth {max(counts.tolist())}")
            rows.append(counts)
        if rows:
            pool.add(names, np.array(rows))
        if len(rows) < rungs:
            break
