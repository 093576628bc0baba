"""Plans for several budgets, for a picture that compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.bytesize import UNBOUNDED
from ...core.errors import BudgetError, MemoryBudgetError

if TYPE_CHECKING:
    from ..plan import MemoryPlan

MOST = 1000  # plans


def along_budgets(plan: MemoryPlan, budgets: int | Sequence[int | str] | None) -> list[MemoryPlan]:
    """Plans of the problem of `plan` within the given budgets, or for so many budgets between the least and
    keeping everything; None: none.

    Raises MemoryBudgetError where one cannot be kept.
    """
    if budgets is None:
        return []
    if isinstance(budgets, int):
        return budgets_between(plan, budgets)
    return [plan.within(budget) for budget in budgets]


def budgets_between(plan: MemoryPlan, count: int) -> list[MemoryPlan]:
    """Plans for `count` budgets, the least that works first, in equal ratios up to keeping everything."""
    if not 1 <= count <= MOST:
        raise BudgetError(f"Plans can be made for 1 to {MOST} budgets, got {count}.")
    full = replace(plan.within(UNBOUNDED), budget_bytes=None)
    if count == 1:
        return [full]
    try:
        plan.within(1)
        least = full.peak_bytes
    except MemoryBudgetError as error:
        least = error.least_feasible_bytes
    if least >= full.peak_bytes:
        return [full]
    ratio = (full.peak_bytes / least) ** (1 / (count - 1))
    budgets = sorted({least, *(int(least * ratio**i) for i in range(1, count - 1))})
    return [*map(plan.within, budgets), full]
