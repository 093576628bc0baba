"""The steps that a network offers, each made when a plan needs it: the executor asks, the planner answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ...core.cached import cached_property
from ...core.errors import MemoryBudgetError
from ...core.process import forks
from ...memplan import MemoryPlan, plan_memory, Problem, Search, Template

Fixed = Mapping[str, int]


class LazySteps:
    """Problems of one network, the one that is run if it fits first; the others are made when asked for.

    `bounded()` makes them one by one, the same ones each time. It is called again where it did not end well:
    its error went to somebody else, or this is a forked child and a thread of the parent was making the next.

    `free` is the step that is run where nobody names a budget. `besides` are bytes, by category, that lie
    outside the arena next to those of the step itself. `advise(error, besides)` is what would help where no
    plan fits, from those who know the network.
    """

    def __init__(
        self,
        free: Callable[[], Problem],
        bounded: Callable[[], Iterable[Problem]],
        strategy: str = "sharing",
        advise: Callable[[MemoryBudgetError, Fixed], str] | None = None,
        besides: Callable[[], Fixed] = dict,
    ) -> None:
        self._free = free
        self._advise = advise
        self._besides = besides
        self._bounded = bounded
        self._rest: Iterator[Problem] | None = None
        self._made: list[Problem] = []
        self._lock = forks.lock()
        self.strategy = strategy

    @classmethod
    def of(cls, problem: Problem, strategy: str = "sharing") -> LazySteps:
        """The steps of somebody who has but one."""
        return cls(lambda: problem, lambda: (problem,), strategy)

    @cached_property
    def free(self) -> Problem:
        return self._free()

    @property
    def first(self) -> Problem:
        """The step that is run within a budget if all of it fits."""
        return next(iter(self))

    def __iter__(self) -> Iterator[Problem]:
        at = 0
        while True:
            with self._lock:  # a plan may be asked by several threads
                if at == len(self._made):
                    self._make_next()
            if at == len(self._made):
                return
            yield self._made[at]
            at += 1

    def _make_next(self) -> None:
        if self._rest is None:
            self._rest = itertools.islice(self._bounded(), len(self._made), None)
        rest, self._rest = self._rest, None  # who does not come back from it leaves none
        self._made += itertools.islice(rest, 1)
        self._rest = rest

    @cached_property
    def lower_bound_bytes(self) -> int:
        """Proven: no plan of any of the steps owns less than this."""
        return min(problem.lower_bound_bytes for problem in self)

    @property
    def besides(self) -> Fixed:
        """Bytes by category that lie outside the arena besides those of the step."""
        return self._besides()

    def plan(self, budget: int | None = None, template: Template | MemoryPlan | None = None) -> MemoryPlan:
        """The plan of whichever step is the fastest within `budget` bytes; of `free` without one.

        The others are made only where the first does not fit as it is. `template` as for `plan_memory`.
        Raises MemoryBudgetError.
        """
        if budget is None:
            found = plan_memory(self.free, strategy=self.strategy, template=template)
        else:
            found = self._search(budget, template).plan()
        return replace(found, steps=self)

    def fitting(self, budget: int) -> MemoryPlan | None:
        """The same within a budget; None if none fits, without the time to find what would."""
        if self.lower_bound_bytes > budget:
            return None
        found = self._search(budget).found()
        return None if found is None else replace(found, steps=self)

    def _search(self, budget: int, template: Template | MemoryPlan | None = None) -> Search:
        search = Search(budget, self.strategy, template)
        for problem in self:
            if search.is_answered_by(problem):
                break
        return search

    def within(self, budget: int) -> MemoryPlan:
        """The same; an error says what would help."""
        try:
            return self.plan(budget)
        except MemoryBudgetError as error:
            self.explain(error)
            raise

    def explain(self, error: MemoryBudgetError) -> None:
        """Let `error`, that none of the steps fits, say what would help, when somebody reads it."""
        if self._advise is not None:
            error.advise = partial(self._advise, error, self.besides)

    def only(self, problem: Problem) -> LazySteps:
        """`problem`, which is one of these, as if there were no other."""
        return LazySteps(lambda: problem, lambda: (problem,), self.strategy, self._advise, self._besides)

    def owning(self, fixed_bytes: Fixed, of: Fixed) -> LazySteps:
        """The same steps where so many bytes, by category, lie outside the arena with a step that owns `of`.

        With one that owns more or less than that, so many more or fewer do: ranks may share states or not.
        """

        def owning(problem: Problem) -> Problem:
            own = problem.fixed_bytes
            found = {c: fixed_bytes.get(c, 0) + own.get(c, 0) - of.get(c, 0) for c in {**fixed_bytes, **own}}
            return replace(problem, fixed_bytes={c: n for c, n in found.items() if n or c in fixed_bytes})

        def besides() -> Fixed:  # asked where no step fits: then the first is made
            own, more = self.first.fixed_bytes, self.besides
            found = {c: n - own.get(c, 0) + more.get(c, 0) for c, n in fixed_bytes.items()}
            return {c: n for c, n in found.items() if n}

        bounded = partial(map, owning, self)
        return LazySteps(lambda: owning(self.free), bounded, self.strategy, self._advise, besides)

    def __reduce__(self) -> tuple[object, ...]:
        """For another process: without advice, as the network stays here."""
        return _known, (self.free, tuple(self), self.strategy)


def _known(free: Problem, bounded: tuple[Problem, ...], strategy: str) -> LazySteps:
    return LazySteps(lambda: free, lambda: bounded, strategy)
