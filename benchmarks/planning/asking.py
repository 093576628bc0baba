"""Queries to the planner: plan for a budget, least budget, least bytes for a given extra time."""

from __future__ import annotations

from dataclasses import dataclass, field

import mxlite as mx
from mxlite.memplan import check, MemoryPlan, plan_memory, Problem


@dataclass
class Asked:
    """Plans of one problem by requested arena bytes; None if the planner finds none.

    Every plan has been verified.
    """

    problem: Problem
    plans: dict[int, MemoryPlan | None] = field(default_factory=dict)
    least_bytes: int | None = None

    @property
    def keep_all(self) -> MemoryPlan:
        return plan_memory(self.problem)

    def within(self, arena: int) -> MemoryPlan | None:
        """The plan for an arena of so many bytes."""
        if arena not in self.plans:
            try:
                plan = plan_memory(self.problem, arena + self.problem.fixed_total)
                check(plan)
                assert plan.arena_bytes <= arena, (plan.arena_bytes, arena)
                self.plans[arena] = plan
            except mx.MemoryBudgetError as error:
                self.plans[arena] = None
                self.least_bytes = error.least_feasible_bytes - self.problem.fixed_total
        return self.plans[arena]

    def least(self) -> MemoryPlan:
        """The plan for the feasible budget that the error names."""
        if self.least_bytes is None:
            self.within(1)
        assert self.least_bytes is not None
        plan = self.within(self.least_bytes)
        assert plan is not None, "The budget that the error named does not work."
        return plan

    def least_for(self, extra: float, steps: int = 6) -> MemoryPlan:
        """The smallest plan found with extra time at most `extra`: bisection, starting from known plans."""
        known = [p for p in (*self.plans.values(), self.keep_all) if p is not None]
        best = min((p for p in known if p.extra_time <= extra), key=lambda p: p.arena_bytes)
        low = max((p.arena_bytes for p in known if p.extra_time > extra), default=self.least().arena_bytes)
        for _ in range(steps):
            middle = (low + best.arena_bytes) // 2
            if middle >= best.arena_bytes or middle <= low:
                break
            plan = self.within(middle)
            if plan is not None and plan.extra_time <= extra:
                best = plan
            else:
                low = middle
        return best
