"""A plan within a budget: the fastest point of the problem's frontier whose placed arena fits.

Only the placed size decides. So the search for points may be clever or not: the planner cannot promise
bytes that it does not keep. Nothing depends on time or chance: equal problems get equal plans.
"""

from __future__ import annotations

from dataclasses import replace

from . import cache, split
from .frontier import Frontier, frontier
from .plan import make_plan, MemoryPlan
from .problem import Problem
from .refusal import too_small
from .template import Template

REMEMBERED = 8  # plans kept for when the same problem comes again, as `memory_plan` and then `fit` do
FRONTIERS = 4  # kept for other budgets of the same problem

_plans: dict[tuple[str, int | None, str], MemoryPlan] = {}
_frontiers: dict[tuple[str, str], Frontier] = {}


def plan_memory(
    problem: Problem,
    budget: int | None = None,
    *,
    strategy: str = "sharing",
    template: Template | MemoryPlan | None = None,
) -> MemoryPlan:
    """The memory plan of `problem`.

    Without a budget nothing is recomputed except what the user marked. With one, the plan of least
    recompute time among all candidates whose `peak_bytes` is within `budget` bytes; a larger budget never
    gets a slower one. Raises MemoryBudgetError, with a budget that does work, when there is none.

    `template`: a plan for other sizes. Where the structure is the same, what it has found out is used
    again, in a small part of the time; see `template.py`. Such a plan keeps the budget, but may be slower
    than that of a search, which is made where the template has nothing to offer.
    """
    if template is not None and strategy == "sharing":
        template = template if isinstance(template, Template) else Template(template)
        made = template.plan(problem, budget, frontier_of)
        if made is not None:
            return made
    key = (problem.digest, budget, strategy)
    if key not in _plans:
        found = _search(problem, budget, strategy)
        if len(_plans) >= REMEMBERED:
            _plans.pop(next(iter(_plans)))
        _plans[key] = found
    # Names of two equal problems are equal too, but the graph behind is the caller's own.
    found = _plans[key]
    return replace(found, schedule=replace(found.schedule, problem=problem))


def frontier_of(problem: Problem, strategy: str = "sharing") -> Frontier:
    """`frontier(problem, strategy)`, remembered for the problems asked for last, and on disk for others."""
    key = (problem.digest, strategy)
    if key not in _frontiers:
        points = cache.load(problem, strategy)
        found = frontier(problem, strategy) if points is None else Frontier(problem, strategy, points)
        if points is None:
            cache.store(problem, strategy, found.points)
        if len(_frontiers) >= FRONTIERS:
            _frontiers.pop(next(iter(_frontiers)))
        _frontiers[key] = found
    return _frontiers[key]


def _search(problem: Problem, budget: int | None, strategy: str) -> MemoryPlan:
    marked = split.forced(problem)
    keep_all = make_plan(problem, marked, strategy=strategy, method=split.keeping(problem))
    keep_all = replace(keep_all, budget_bytes=budget, keep_all_peak_bytes=keep_all.peak_bytes)
    if budget is None or keep_all.peak_bytes <= budget:
        return keep_all
    points = frontier_of(problem, strategy)
    found = points.at(budget - problem.fixed_total)
    if found is None:
        raise too_small(problem, budget, points.least(), points.least_within(problem.step_seconds), keep_all)
    return replace(found, budget_bytes=budget, keep_all_peak_bytes=keep_all.peak_bytes)
