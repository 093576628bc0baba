"""Checkpoints within a budget: the planner chooses submodules of a chain, rehearsals tell what that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import MemoryBudgetError, parse_bytes
from ....core.bytesize import format_bytes
from ....memplan import plan_memory
from .problem import INSIDE, problem_of
from .regions import chains_of
from .rehearsal import Rehearsal, rehearse, state_bytes_of

SHARES = (1.25, 1.2, 1.15, 1.1, 1.05, 1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
"""Budgets for the planner, as shares of the real one: its chain is simpler than a step."""


@dataclass(frozen=True)
class CheckpointPlan:
    """The submodules that PyTorch recomputes in a training step, and the bytes of tensors that it then takes.

    `peak_bytes` is rehearsed with these checkpoints; `keep_all_peak_bytes` without any. `extra_time` is the
    time of recomputation / the time of the step without it, by arithmetic and bytes moved. `breakdown` names
    what is there all the time; the rest are gradients and what autograd keeps.
    """

    regions: tuple[str, ...]
    peak_bytes: int
    keep_all_peak_bytes: int
    extra_time: float
    breakdown: Mapping[str, int]
    budget_bytes: int | None = None

    def __str__(self) -> str:
        rest = self.peak_bytes - sum(self.breakdown.values())
        rows = [*self.breakdown.items(), ("gradients and activations", rest), ("peak", self.peak_bytes)]
        rows.append(("peak, keeping all", self.keep_all_peak_bytes))
        lines = [f"  {name:<26} {format_bytes(nbytes):>12}" for name, nbytes in rows]
        title = f"Checkpoints of {len(self.regions)} submodules, {100 * self.extra_time:.1f} % extra time"
        return "\n".join([title, *lines, *(f"  recomputed: {name}" for name in self.regions)])


def plan_checkpoints(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    budget: int | str | None = None,
) -> CheckpointPlan:
    """The submodules to checkpoint in a training step as PyTorch runs it, for `apply`. Nothing is allocated.

    args, kwargs: example inputs, as for `from_torch`; a module that returns its loss, a number, is planned
    with it.  optimizer: a torch.optim.Optimizer, whose states count.  budget: bytes of tensors, parameters
    included, or text such as "4GiB"; None: nothing is recomputed.

    Submodules that keep most of the bytes form a chain, and the planner chooses which of them to recompute.
    Each choice is rehearsed, step by step and without numbers; the fastest that fits is taken, less what it
    can do without. Raises MemoryBudgetError, with a budget that works, if none fits.
    """

    def peak(names: tuple[str, ...]) -> int:
        return rehearse(module, args, kwargs, state_bytes, names).peak_bytes

    state_bytes = state_bytes_of(optimizer)
    seen = rehearse(module, args, kwargs, state_bytes, ())
    seconds = {name: span.seconds for name, span in seen.spans.items()}
    wanted = None if budget is None else parse_bytes(budget)
    chosen: tuple[str, ...] = ()
    least = found = seen.peak_bytes
    if wanted is not None and found > wanted:
        for names in _choices(seen, wanted):
            least = min(least, now := peak(names))
            if now <= wanted:
                chosen, found = names, now
                break
        else:
            raise MemoryBudgetError(
                f"{type(module).__name__} does not fit {format_bytes(wanted)} in PyTorch: with the "
                f"checkpoints found it takes {format_bytes(least)}, without any "
                f"{format_bytes(seen.peak_bytes)}.",
                budget_bytes=wanted,
                least_feasible_bytes=least,
                lower_bound_bytes=sum(seen.fixed.values()),
                keep_all_peak_bytes=seen.peak_bytes,
            )
        for name in sorted(chosen, key=lambda name: -seconds[name]):
            fewer = tuple(n for n in chosen if n != name)
            if (now := peak(fewer)) <= wanted:
                chosen, found = fewer, now
    step = 3 * seen.seconds[seen.forward]
    extra = sum(seconds[name] for name in chosen) / step if step else 0.0
    return CheckpointPlan(chosen, found, seen.peak_bytes, extra, dict(seen.fixed), wanted)


def _choices(seen: Rehearsal, budget: int) -> list[tuple[str, ...]]:
    """Choices of the planner near the budget, and all regions of each chain; the fastest come first."""
    found: dict[tuple[str, ...], None] = {}
    for chain in chains_of(seen):
        whole = plan_memory(problem_of(seen, chain))
        for share in SHARES:
            try:
                plan = whole.within(int(budget * share))
            except MemoryBudgetError:
                break
            again = {t for t, copy in zip(plan.schedule.task, plan.schedule.copy) if copy}
            tasks = enumerate(plan.problem.tasks)
            found[tuple(task.name for i, task in tasks if i in again and task.op == INSIDE)] = None
        found[tuple(span.name for span in chain)] = None
    return sorted(found, key=lambda names: sum(seen.spans[name].seconds for name in names))
