"""A plan within a budget: many ways to recompute, one exact evaluation of each, the fastest that fits.

Each candidate is a list of mirror counts. Its schedule is made and its live bytes are summed exactly; what
seems to fit is placed in an arena, and only the placed size decides. So the planner may be clever or
not: it cannot promise bytes that it does not keep. Nothing depends on time or chance: equal problems get
equal plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import cache, split
from .evaluate import Evaluator
from .plan import make_plan, MemoryPlan
from .problem import Problem
from .refusal import too_small

FRACTIONS = 16  # partial dropping is tried in sixteenths
REMEMBERED = 8  # plans kept for when the same problem comes again, as `memory_plan` and then `fit` do

_plans: dict[tuple[str, int | None, str], MemoryPlan] = {}


@dataclass(frozen=True)
class Candidate:
    """Mirror counts with what they cost: most live bytes in the arena, recompute time."""

    method: str
    counts: tuple[int, ...]
    live_bytes: int
    extra_seconds: float


def plan_memory(problem: Problem, budget: int | None = None, *, strategy: str = "sharing") -> MemoryPlan:
    """The memory plan of `problem`.

    Without a budget nothing is recomputed except what the user marked. With one, the plan of least
    recompute time among all candidates whose `peak_bytes` is within `budget` bytes. Raises
    MemoryBudgetError, with a budget that does work, when there is none.
    """
    key = (problem.digest, budget, strategy)
    if key not in _plans:
        if len(_plans) >= REMEMBERED:
            _plans.pop(next(iter(_plans)))
        plan = cache.load(problem, budget, (strategy,))
        if plan is None:
            plan = _search(problem, budget, strategy)
            cache.store(plan, (strategy,))
        _plans[key] = plan
    # Names of two equal problems are equal too, but the graph behind is the caller's own.
    found = _plans[key]
    return replace(found, schedule=replace(found.schedule, problem=problem))


def _search(problem: Problem, budget: int | None, strategy: str) -> MemoryPlan:
    marked = split.forced(problem)
    method = "recompute what is marked" if any(marked) else "keep all"
    keep_all = make_plan(problem, marked, strategy=strategy, method=method)
    keep_all = replace(keep_all, budget_bytes=budget, keep_all_peak_bytes=keep_all.peak_bytes)
    if budget is None or keep_all.peak_bytes <= budget:
        return keep_all
    search = _Search(problem, budget - problem.fixed_total, strategy)
    found = search.best()
    if found is not None:
        return replace(found, budget_bytes=budget, keep_all_peak_bytes=keep_all.peak_bytes)
    least = min(keep_all, search.least(), key=lambda p: (p.peak_bytes, p.extra_time))
    raise too_small(problem, budget, least, keep_all)


class _Search:
    def __init__(self, problem: Problem, arena_budget: int, strategy: str) -> None:
        self.problem = problem
        self.arena_budget = arena_budget
        self.strategy = strategy
        self.evaluator = Evaluator(problem, strategy)
        self.cuts = split.find_cuts(problem)
        self.found: dict[tuple[int, ...], Candidate] = {}

    def evaluate(self, method: str, counts: list[int]) -> Candidate:
        key = tuple(counts)
        if key not in self.found:
            nbytes, seconds = self.evaluator.one(counts)
            self.found[key] = Candidate(method, key, nbytes, seconds)
        return self.found[key]

    def fits(self, candidate: Candidate) -> bool:
        return max(candidate.live_bytes, self.problem.least_arena) <= self.arena_budget

    def flat(self) -> list[Candidate]:
        """Candidates that run nothing more than twice; tried whatever the budget is."""
        cuts, problem = self.cuts, self.problem
        tried = [self.evaluate("drop cheap results", split.cheap(problem))]
        if not cuts.at:
            tried.append(self.evaluate("recompute everything", split.partial(cuts, 0, 1.0)))
            return tried
        for s in split.strides(cuts):
            tried.append(self.evaluate(f"keep 1 cut in {s}", split.partial(cuts, s, 1.0)))
        total = split.total_bytes(problem)
        for i in range(1, 9):
            tried.append(self.evaluate(f"segments of 1/{2**i}", split.by_bytes(cuts, total >> i)))
        return tried

    def deep(self) -> list[Candidate]:
        """Candidates that recompute within what is recomputed; they cost more time, and least memory."""
        cuts = self.cuts
        return [
            self.evaluate(f"{levels} levels of {radix}", split.nested(cuts, radix, levels))
            for levels in (2, 3, 4)
            for radix in (2, 3, 4, 6, 8, 12, 16)
            if radix**levels <= 4 * len(cuts.at)
        ]

    def best(self) -> MemoryPlan | None:
        """The fastest plan that fits; None if there is none."""
        self.flat()
        # Every other stride first, then both neighbours of the best: cost is smooth in the stride.
        strides = [0, *split.strides(self.cuts)]
        costs = {i: self.refine(strides[i]) for i in range(0, len(strides), 2)}
        centre = min(costs, key=lambda i: (costs[i], i))
        for i in (centre - 1, centre + 1):
            if 0 <= i < len(strides):
                self.refine(strides[i])
        found = self.fastest(list(self.found.values()))
        return found if found is not None else self.fastest(self.deep())

    def fastest(self, candidates: list[Candidate]) -> MemoryPlan | None:
        """Of these the one with the least recompute time whose placed arena fits."""
        fitting = [c for c in candidates if self.fits(c)]
        for candidate in sorted(fitting, key=lambda c: (c.extra_seconds, c.live_bytes)):
            plan = self.place(candidate)
            if plan.arena_bytes <= self.arena_budget:
                return plan
        return None

    def refine(self, stride: int) -> float:
        """Bisect for the least fraction to drop that still fits with this stride; its recompute time."""
        cuts = self.cuts
        best = self.evaluate(f"keep 1 cut in {stride}", split.partial(cuts, stride, 1.0))
        if not self.fits(best):
            return float("inf")
        low, high = 0, FRACTIONS
        while high - low > 1:
            middle = (low + high) // 2
            counts = split.partial(cuts, stride, middle / FRACTIONS)
            drop = f"drop {middle}/{FRACTIONS}"
            tried = self.evaluate(f"keep 1 cut in {stride}, {drop}" if stride else drop, counts)
            if self.fits(tried):
                high, best = middle, tried
            else:
                low = middle
        return best.extra_seconds

    def place(self, candidate: Candidate) -> MemoryPlan:
        return make_plan(self.problem, candidate.counts, strategy=self.strategy, method=candidate.method)

    def least(self) -> MemoryPlan:
        """The smallest plan of the candidates that do not depend on the budget: asked for again, it is
        found.
        """
        smallest = sorted([*self.flat(), *self.deep()], key=lambda c: (c.live_bytes, c.extra_seconds))
        return min((self.place(c) for c in smallest[:3]), key=lambda p: p.peak_bytes)
