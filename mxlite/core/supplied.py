"""A function that a file above supplies to one below, which calls it and imports nothing upwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Supplied(Generic[F]):
    """A place for a function. The file that defines the function fills the place when it is imported:

    plan_within: Supplied[Callable[[Problem, int], MemoryPlan]] = Supplied()      # below, which calls
    plan_within.call(problem, budget)

    plan_within.supply(plan_memory)                                               # above, which defines
    """

    __slots__ = ("call",)

    call: F

    def supply(self, function: F) -> None:
        """Make `function` the one that is called."""
        self.call = function
