"""Planning of a program from a request: a step, its plan, or remedies if there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...core import BindError
from ...core.errors import MemoryBudgetError
from ...core.process.collection import no_collection
from ...memplan import MemoryPlan
from ..measure.trials import tried
from ..request.adopt import adopted, is_of
from ..request.watch import Seen
from .candidates import Candidates, Planned
from .lazy_steps import LazySteps
from .lower import Lowered
from .remedies import advice, Question, Refused


def any_room(planned: Planned) -> None:
    """Room check for plans whose arrays are never created."""


@dataclass(frozen=True, eq=False)
class Planning:
    """Choice of one of `candidates` and its plan; `run` makes it, once.

    `plan` is a given one. `choose` makes the training step's plan, if the caller wants to.
    `attempt` tries a plan whose seconds are measured. `room` raises MemoryBudgetError if the arrays have
    no room. `steps` are those of the candidates, if they have been created.
    """

    candidates: Candidates
    plan: MemoryPlan | None = None
    choose: Callable[[Candidates, LazySteps, Lowered], MemoryPlan] | None = None
    room: Callable[[Planned], None] = any_room
    attempt: Callable[[Lowered, MemoryPlan], MemoryPlan] = tried
    steps: LazySteps | None = None

    def run(self) -> tuple[Planned, dict[str, str]]:
        """The planned program, and the gradient request of each argument."""
        parts = self.candidates.of_devices
        if len(parts) == 1:
            return self._run()
        if self.plan is not None:
            raise BindError(
                f"plan= is for a program on one device, but group2ctx names {len(parts)}: each has a plan."
            )
        found: list[tuple[Planned, dict[str, str]]] = []
        refused: list[MemoryBudgetError] = []
        for asked in parts:
            with asked.share_of_threads():
                try:
                    found.append(replace(self, candidates=asked, steps=None)._run())
                except MemoryBudgetError as error:
                    error.args = (f"{asked.context}: {error.args[0]}",)
                    refused.append(error)
        if refused:
            raise _largest(refused)
        (first, requests), *others = found
        return replace(first, others=tuple(planned for planned, _ in others)), requests

    def _run(self) -> tuple[Planned, dict[str, str]]:
        """The same for one device."""
        asked = self.candidates
        advise = partial(what_helps, asked)
        with no_collection():
            if asked.like is not None:
                train, _ = asked.like
                with suppress(MemoryBudgetError):  # an order of these sizes' own may take less
                    bounded = train.light and asked.request.budget is not None
                    return self._planned(asked.steps(train, train.light, bounded, advise)), asked.requests
            return self._planned(self.steps or asked.steps(None, True, False, advise)), asked.requests

    def _planned(self, steps: LazySteps) -> Planned:
        asked = self.candidates
        may_advise = self.choose is None  # otherwise `choose` knows what is beside the step
        try:
            found = self._chosen(steps)
            made = asked.of(found.problem)
            if asked.is_measured and self.plan is None:
                found = self.attempt(made.train, found)
            shown = (*asked.looked.shown, *(Seen(name, key, True) for name, key in made.train.step.points))
            result = Planned(asked, made.infer, made.infer_plan, made.train, found, shown)
            may_advise = True
            self.room(result)
        except MemoryBudgetError as error:
            if may_advise:
                steps.explain(error)
            raise
        return result

    def _chosen(self, steps: LazySteps) -> MemoryPlan:
        """The plan that was brought, that `choose` makes, or the quickest within the budget."""
        budget = self.candidates.request.budget
        usual = steps.free if budget is None else steps.first
        if self.plan is not None:
            mine = (p for p in (usual, steps.free, *steps) if is_of(self.plan, p))
            return replace(adopted(self.plan, next(mine, usual), budget), steps=steps)
        if self.choose is not None:
            return self.choose(self.candidates, steps, self.candidates.of(usual).train)
        return steps.plan(budget)


def what_helps(asked: Candidates, error: MemoryBudgetError, besides: Mapping[str, int]) -> str:
    """Remedies if no plan fits, with these bytes beside those of the step."""

    def fixed(programs: Sequence[Lowered], separate: bool) -> dict[str, int]:
        beside = {c: n for c, n in besides.items() if separate or c != "optimizer"}
        return _sum(programs[0].problem.fixed_bytes, beside)

    return advice(Question([Refused(asked, error.least_feasible_bytes)], [], fixed, error))


def _largest(refused: list[MemoryBudgetError]) -> MemoryBudgetError:
    """The refusal of the device that needs most, of several devices, which have one budget."""
    error = max(refused, key=lambda e: e.least_feasible_bytes)
    error.lower_bound_bytes = max(e.lower_bound_bytes for e in refused)
    if len(refused) > 1:
        error.remark(f"This is the one of {len(refused)} devices without room that needs most.")
    return error


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Bytes by category."""
    return {c: one.get(c, 0) + other.get(c, 0) for c in {**one, **other}}
