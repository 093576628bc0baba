"""The memory plan of a step of a PyTorch module, before the step, and the checkpoints of its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....core import MemoryBudgetError, MXLiteError, parse_bytes
from ....core.bytesize import format_bytes
from ....core.cached import cached_property
from ....memplan import MemoryPlan
from ...building import NotSupportedError
from .imported import imported_plan
from .problem import Choice
from .rehearsal import rehearse, state_bytes_of
from .search import cheapest_within

NEVER = 2**62
"""Bytes of a step that cannot be run."""


@dataclass(frozen=True)
class StepPlan:
    """A training step of a module as PyTorch runs it: what it recomputes, and the bytes of tensors it takes.

    `regions` are the submodules that are checkpointed, and of each the calls whose results it keeps.
    `peak_bytes` is rehearsed with them; `keep_all_peak_bytes` without any. `extra_time` is the time of
    recomputation / the time of the step without it, by arithmetic and bytes moved. `breakdown` names what is
    there all the time; the rest are gradients and what autograd keeps. `mxlite` is the plan of the same step
    where mxlite runs it. Print it for the tables of both.
    """

    regions: Choice
    peak_bytes: int
    keep_all_peak_bytes: int
    extra_time: float
    breakdown: Mapping[str, int]
    budget_bytes: int | None = None
    imported: Callable[[], MemoryPlan] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def mxlite(self) -> MemoryPlan:
        """The plan of mxlite's own step, for the same budget. Planned when it is first asked for.

        Raises MemoryBudgetError if none is found that fits, and what `from_torch` raises.
        """
        assert self.imported is not None
        return self.imported()

    def summary(self) -> str:
        """The table of PyTorch's step."""
        rest = self.peak_bytes - sum(self.breakdown.values())
        rows = [*self.breakdown.items(), ("gradients and activations", rest), ("peak", self.peak_bytes)]
        rows.append(("peak, keeping all", self.keep_all_peak_bytes))
        lines = [f"  {name:<26} {format_bytes(nbytes):>12}" for name, nbytes in rows]
        title = (
            f"PyTorch, {len(self.regions)} submodules recomputed, {100 * self.extra_time:.1f} % extra time"
        )
        return "\n".join([title, *lines, *map(self._row, self.regions)])

    def __str__(self) -> str:
        try:
            own = self.mxlite.summary()
        except MXLiteError as error:
            own = str(error)
        return f"{self.summary()}\n\nmxlite, where it runs the step itself\n{own}"

    def _row(self, name: str) -> str:
        kept = [call.operator.removeprefix("aten.").split(".")[0] for call in self.regions[name]]
        return f"  recomputed: {name}{', but for ' + ', '.join(kept) if kept else ''}"


def plan(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    budget: int | str | None = None,
) -> StepPlan:
    """The plan of one training step of a torch.nn.Module, for `apply`; print it. Nothing is allocated.

    args, kwargs: example inputs, as for `from_torch`; a module that returns its loss, a number, is planned
    with it.  optimizer: a torch.optim.Optimizer, whose states count.  budget: bytes of tensors, parameters
    included, or text such as "4GiB"; None: nothing is recomputed.

    Submodules that keep most of the bytes form a chain, and the planner chooses which calls of operators in
    them are recomputed. Choices are rehearsed, call by call and without numbers, and the fastest that fits is
    taken. Where keeping some results of a submodule would cost more than it saves (each of its calls then
    passes through Python), all of it is recomputed.

    Raises MemoryBudgetError, with a budget that works, if none fits.
    """
    state_bytes = state_bytes_of(optimizer)

    def peak(choice: Choice) -> int:
        try:
            return rehearse(module, args, kwargs, state_bytes, choice).peak_bytes
        except NotSupportedError:  # a submodule does not do the same when it is run again
            return NEVER

    def imported() -> MemoryPlan:
        return imported_plan(module, args, kwargs, optimizer, wanted)

    seen = rehearse(module, args, kwargs, state_bytes, {})
    wanted = None if budget is None else parse_bytes(budget)
    chosen: Choice = {}
    found, extra = seen.peak_bytes, 0.0
    if wanted is not None and found > wanted:
        chosen, found, extra = cheapest_within(seen, wanted, peak)
        if found > wanted:
            raise MemoryBudgetError(
                f"{type(module).__name__} does not fit {format_bytes(wanted)} in PyTorch: with the "
                f"checkpoints found it takes {format_bytes(found)}, without any "
                f"{format_bytes(seen.peak_bytes)}. {_imported_fits(imported)}",
                budget_bytes=wanted,
                least_feasible_bytes=found,
                lower_bound_bytes=sum(seen.fixed.values()),
                keep_all_peak_bytes=seen.peak_bytes,
            )
    share = extra / seen.seconds[-1]
    return StepPlan(chosen, found, seen.peak_bytes, share, dict(seen.fixed), wanted, imported)


def _imported_fits(imported: Callable[[], MemoryPlan]) -> str:
    try:
        return f"Imported by mx.from_torch, it trains in {format_bytes(imported().peak_bytes)}."
    except MemoryBudgetError as error:
        return f"Imported by mx.from_torch, it needs {format_bytes(error.least_feasible_bytes)}."
    except MXLiteError:
        return "mx.from_torch cannot import it."
