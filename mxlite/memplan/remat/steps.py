"""Alternative steps of one network: planning for a budget considers all of them.

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

Taking the faster of two frontiers keeps the property that a larger budget never gets a slower plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ...core import forks
from ...core.cached import cached_property
from ...core.errors import MemoryBudgetError
from ..problem import Problem

Fixed = Mapping[str, int]


class Steps:
    """Problems of one network; first the one that runs if it fits, the others are created on request.

    `within()` creates them one by one, the same ones each time. It is called once more after an error:
    another caller got that error, or this is a forked child and a thread of the parent was creating the next.

    `free` is the step that runs without a budget. `besides` are bytes, by category, that lie
    outside the arena next to those of the step itself. `advise(error, besides)` adds remedies to the error
    that no plan fits, from callers who know the network.
    """

    def __init__(
        self,
        free: Callable[[], Problem],
        within: Callable[[], Iterable[Problem]],
        strategy: str = "sharing",
        advise: Callable[[MemoryBudgetError, Fixed], str] | None = None,
        besides: Callable[[], Fixed] = dict,
    ) -> None:
        self._free = free
        self._advise = advise
        self._besides = besides
        self._within = within
        self._rest: Iterator[Problem] | None = None
        self._made: list[Problem] = []
        self._lock = forks.lock()
        self.strategy = strategy

    @classmethod
    def of(cls, problem: Problem, strategy: str = "sharing") -> Steps:
        """The steps of a network that offers only one."""
        return cls(lambda: problem, lambda: (problem,), strategy)

    @cached_property
    def free(self) -> Problem:
        return self._free()

    @property
    def first(self) -> Problem:
        """The step that runs within a budget if all of it fits."""
        return next(iter(self))

    def __iter__(self) -> Iterator[Problem]:
        at = 0
        while True:
            with self._lock:  # a plan may be requested by several threads
                if at == len(self._made):
                    self._make_next()
            if at == len(self._made):
                return
            yield self._made[at]
            at += 1

    def _make_next(self) -> None:
        if self._rest is None:
            self._rest = itertools.islice(self._within(), len(self._made), None)
        rest, self._rest = self._rest, None  # an error in here leaves none
        self._made += itertools.islice(rest, 1)
        self._rest = rest

    @cached_property
    def lower_bound_bytes(self) -> int:
        """Proven lower bound: no plan of any of the steps owns less."""
        return min(problem.lower_bound_bytes for problem in self)

    @property
    def besides(self) -> Fixed:
        """Bytes by category that lie outside the arena besides those of the step."""
        return self._besides()

    def explain(self, error: MemoryBudgetError) -> None:
        """Let `error`, that none of the steps fits, list remedies when it is read."""
        if self._advise is not None:
            error.advise = partial(self._advise, error, self.besides)

    def only(self, problem: Problem) -> Steps:
        """`problem`, which is one of these, as the only step."""
        return Steps(lambda: problem, lambda: (problem,), self.strategy, self._advise, self._besides)

    def owning(self, fixed_bytes: Fixed) -> Steps:
        """The same steps with these bytes, by category, outside the arena."""

        def owning(problem: Problem) -> Problem:
            return replace(problem, fixed_bytes=fixed_bytes)

        def besides() -> Fixed:  # called if no step fits: then the first is there
            own, more = self.first.fixed_bytes, self.besides
            found = {c: n - own.get(c, 0) + more.get(c, 0) for c, n in fixed_bytes.items()}
            return {c: n for c, n in found.items() if n}

        within = partial(map, owning, self)
        return Steps(lambda: owning(self.free), within, self.strategy, self._advise, besides)

    def __reduce__(self) -> tuple[object, ...]:
        """Reduction for another process: without advice, as the network stays here."""
        return _known, (self.free, tuple(self), self.strategy)


def _known(free: Problem, within: tuple[Problem, ...], strategy: str) -> Steps:
    return Steps(lambda: free, lambda: within, strategy)
