"""A plan within a budget: the fastest point of the problem's frontier whose placed arena fits.

Only the placed size decides. So the search for points may be clever or not: the planner cannot promise
bytes that it does not keep. Nothing depends on time or chance: equal problems get equal plans.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.cached import Remembered
from ..files import cache
from ..files.template import Template
from ..plan import make_plan, MemoryPlan, plan_within
from ..problem import Problem
from ..refusal import too_small
from . import split
from .frontier import Frontier, frontier

REMEMBERED = 8  # plans kept in case the same problem comes next, as with `memory_plan` and then `fit`
FRONTIERS = 4  # kept for other budgets of the same problem

_plans = Remembered[tuple[str, int | None, str], MemoryPlan | None](REMEMBERED)
_frontiers = Remembered[tuple[str, str], Frontier](FRONTIERS)


class Search:
    """The plan of one network within a budget, for somebody who can offer several steps that do the same.

    He offers the problem of each to `is_answered_by`, the one that is run if it fits first, until one is
    enough, and asks for the `plan`.
    """

    def __init__(
        self, budget: int, strategy: str = "sharing", template: Template | MemoryPlan | None = None
    ) -> None:
        self.budget, self.strategy = budget, strategy
        self._template = _template_of(template)
        self._offered: list[Problem] = []
        self._whole: MemoryPlan | None = None  # of the first: with everything kept
        self._found: MemoryPlan | None = None

    def is_answered_by(self, problem: Problem) -> bool:
        """True if the plan is found with this problem, and no other is wanted."""
        self._offered.append(problem)
        template = self._template
        if self._whole is None:
            self._whole = _kept(problem, self.strategy, template)
            if self._whole.peak_bytes <= self.budget:
                self._found = self._whole
        if self._found is None and template is not None and self.strategy == "sharing":
            self._found = template.plan(problem, self.budget, frontier_of)
        return self._found is not None

    def plan(self) -> MemoryPlan:
        """The fastest of all plans of what was offered. Raises MemoryBudgetError."""
        found, whole = self.found(), self._whole
        if found is None:
            assert whole is not None
            frontiers = [frontier_of(p, self.strategy) for p in self._offered]
            raise too_small(self._offered, self.budget, frontiers, whole)
        return found

    def found(self) -> MemoryPlan | None:
        """The fastest of all plans of what was offered; None if none fits."""
        budget, strategy, found, whole = self.budget, self.strategy, self._found, self._whole
        assert whole is not None
        for problem in () if found is not None else self._offered:
            # A step that takes longer from the outset than a plan that fits is not even searched.
            if found is None or problem.slowdown - 1 < found.extra_time:
                plan = _within(problem, budget, strategy)
                if plan is not None and (found is None or plan.extra_time < found.extra_time):
                    found = plan
        if found is None:
            return None
        return replace(found, budget_bytes=budget, keep_all_peak_bytes=whole.peak_bytes)


def plan_memory(
    problem: Problem,
    budget: int | None = None,
    *,
    strategy: str = "sharing",
    template: Template | MemoryPlan | None = None,
) -> MemoryPlan:
    """The memory plan of a problem; see `Search` for one of several.

    Without a budget nothing is recomputed except what the user marked. With one, the plan of least
    extra time among all candidates whose `peak_bytes` is within `budget` bytes; a larger budget
    never gets a slower one. Raises MemoryBudgetError, with a budget that does work, when there is none.

    `template`: a plan for other sizes. If the structure is the same, its results are reused
    in a small part of the time; see `template.py`. Such a plan keeps the budget, but may be slower
    than that of a search, which follows if the template has nothing to offer.
    """
    if budget is None:
        whole = _kept(problem, strategy, _template_of(template))
        return replace(whole, budget_bytes=None, keep_all_peak_bytes=whole.peak_bytes)
    search = Search(budget, strategy, template)
    search.is_answered_by(problem)
    return search.plan()


plan_within.supply(plan_memory)


def _template_of(template: Template | MemoryPlan | None) -> Template | None:
    return template if template is None or isinstance(template, Template) else Template(template)


def frontier_of(problem: Problem, strategy: str = "sharing") -> Frontier:
    """`frontier(problem, strategy)`, cached in memory for the latest problems, and on disk for others."""

    def make() -> Frontier:
        lean = problem.leanest
        if len(lean.tasks) < cache.LEAST_TASKS:
            return frontier(problem, strategy)
        points = cache.load(lean, strategy)
        if points is not None:
            return Frontier(problem, strategy, points)
        found = frontier(problem, strategy)
        cache.store(lean, strategy, found.points)
        return found

    return _frontiers.of((problem.digest, strategy), make)


def _kept(problem: Problem, strategy: str, template: Template | None) -> MemoryPlan:
    """The plan that keeps everything but what the user marked."""
    if template is not None and strategy == "sharing":
        made = template.plan(problem, None, frontier_of)
        if made is not None:
            return made
    found = _within(problem, None, strategy)
    assert found is not None
    return found


def _within(problem: Problem, budget: int | None, strategy: str) -> MemoryPlan | None:
    """The fastest plan of one step within a budget; None if there is none."""
    found = _plans.of((problem.digest, budget, strategy), lambda: _search(problem, budget, strategy))
    if found is None:
        return None
    # Equal problems have equal names too, but the underlying graph is the caller's own.
    mine = problem.in_forms(found.problem.threads)
    assert mine is not None
    return replace(found, schedule=replace(found.schedule, problem=mine))


def _search(problem: Problem, budget: int | None, strategy: str) -> MemoryPlan | None:
    if budget is None:
        marked = split.forced(problem)
        return make_plan(problem, marked, strategy=strategy, method=split.keeping(problem))
    keep_all = _within(problem, None, strategy)
    if keep_all is not None and keep_all.peak_bytes <= budget:
        return keep_all
    return frontier_of(problem, strategy).at(budget - problem.fixed_total)
