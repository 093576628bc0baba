"""The steps that one network offers to run: who plans for a budget plans over all of them.

A backend may know a second way to compute the same outputs, which holds less and takes longer even without
recomputation: gates of recurrent layers that backward computes anew. That is another step, with tasks of its
own, and so another problem with a frontier of its own:

    extra time
        |  .
        |   `..second                  a budget's plan is the fastest of all that fit it, whichever step it
        |      `--.------------        runs; times of both are relative to the step without a budget
        |          .
        |           `.first
        +---------------`------ bytes

If a larger budget never gets a slower plan in either of two frontiers, the same holds for the faster of both.

The planner is given plain problems, one after the other, by those who can make them (see `Search`); it asks
nobody for more. A plan only remembers whom its network belongs to, for a user who wants another budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TYPE_CHECKING

from ..problem import Problem

if TYPE_CHECKING:
    from ..plan import MemoryPlan


class Steps(Protocol):
    """The owner of the steps that a plan is of: iterating gives the problem of each, within a budget, the one
    that is run if all of it fits first.
    """

    def __iter__(self) -> Iterator[Problem]: ...

    @property
    def lower_bound_bytes(self) -> int:
        """Proven: no plan of any of the steps owns less than this."""

    def within(self, budget: int) -> MemoryPlan:
        """The plan of whichever step is the fastest. Raises MemoryBudgetError that says what would help."""
