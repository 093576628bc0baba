"""Plans for several budgets, for a picture that compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...core.bytesize import parse_bytes
from ...core.errors import BudgetError, MemoryBudgetError

if TYPE_CHECKING:
    from ..plan import MemoryPlan
    from ..problem import Problem

MOST = 1000  # plans


def along_budgets(problem: Problem, budgets: int | Sequence[int | str] | None) -> list[MemoryPlan]:
    """Plans for these budgets, or for so many between the least and keeping everything; None: none.

    Raises MemoryBudgetError where one cannot be kept.
    """
    from ..search import plan_memory

    if budgets is None:
        return []
    if isinstance(budgets, int):
        return budgets_between(lambda budget: plan_memory(problem, budget), budgets)
    return [plan_memory(problem, parse_bytes(budget)) for budget in budgets]


def budgets_between(plan: Callable[[int | None], MemoryPlan], count: int) -> list[MemoryPlan]:
    """Plans for `count` budgets, the least that works first, in equal ratios up to keeping everything.

    `plan(budget)` makes one; None stands for no budget.
    """
    if not 1 <= count <= MOST:
        raise BudgetError(f"Plans can be made for 1 to {MOST} budgets, got {count}.")
    full = plan(None)
    if count == 1:
        return [full]
    try:
        plan(1)
        least = full.peak_bytes
    except MemoryBudgetError as error:
        least = error.least_feasible_bytes
    if least >= full.peak_bytes:
        return [full]
    ratio = (full.peak_bytes / least) ** (1 / (count - 1))
    budgets = sorted({least, *(int(least * ratio**i) for i in range(1, count - 1))})
    return [*map(plan, budgets), full]
