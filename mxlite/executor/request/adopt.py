"""Adoption of a given plan: it is judged, and compared with the step it is to run."""

from __future__ import annotations

from dataclasses import replace

from ...core.bytesize import format_bytes
from ...core.errors import BindError, PlanError
from ...memplan import check, MemoryPlan, Problem
from ...memplan.files.difference import first_difference


def is_of(plan: MemoryPlan, problem: Problem) -> bool:
    """True if `plan` is a plan of `problem`."""
    return isinstance(plan, MemoryPlan) and first_difference(plan.problem, _alike(problem, plan)) is None


def _alike(problem: Problem, plan: MemoryPlan) -> Problem:
    """`problem` with as many threads for each kernel as in the plan, where it has such kernels."""
    return problem.in_forms(plan.problem.threads) or problem


def adopted(plan: MemoryPlan, problem: Problem, budget: int | None) -> MemoryPlan:
    """`plan` for `problem`; PlanError if it is of another step, unsound, or above `budget`."""
    if not isinstance(plan, MemoryPlan):
        raise BindError(
            f"plan must be a MemoryPlan, as MemoryPlan.from_json gives it; got {type(plan).__name__}."
        )
    problem = _alike(problem, plan)
    if (found := first_difference(plan.problem, problem)) is not None:
        raise PlanError(
            f"The plan was made for another step: {found}. Network, shapes, types, grad_req, optimizer, amp "
            f"must be those it was made with; kernels and threads too (`mxlite doctor` lists them)."
        )
    if budget is not None and plan.peak_bytes > budget:
        raise PlanError(
            f"The plan takes {plan.peak_bytes} bytes ({format_bytes(plan.peak_bytes)}), more than "
            f"memory_budget={budget}: leave the budget out, or plan anew for it."
        )
    problem = replace(problem, host=plan.problem.host)  # the plan decides how fast copies are
    plan = replace(plan, schedule=replace(plan.schedule, problem=problem))
    check(plan, plan.predecessors)  # in every order that an engine may choose
    return plan
