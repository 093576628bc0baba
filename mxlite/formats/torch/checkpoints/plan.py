"""Checkpoints within a budget: the planner chooses submodules of a chain, rehearsals tell what that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import MemoryBudgetError, parse_bytes
from ....core.bytesize import format_bytes
from ....memplan import MemoryPlan, plan_memory
from .problem import INSIDE, problem_of
from .regions import regions_of
from .rehearsal import rehearse

TRIES = 24
"""The most rehearsals of one plan: each takes as long as a few real steps of a small network."""


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
        return rehearse(module, args, kwargs, optimizer, names).peak_bytes

    seen = rehearse(module, args, kwargs, optimizer, ())
    seconds = {span.name: span.seconds for span in regions_of(seen)}
    wanted = None if budget is None else parse_bytes(budget)
    chosen: tuple[str, ...] = ()
    least = found = seen.peak_bytes
    if wanted is not None and found > wanted:
        problem = problem_of(seen)
        for names in _choices(plan_memory(problem), wanted, tuple(seconds)):
            least = min(least, now := peak(names))
            if now <= wanted:
                chosen, found = names, now
                break
        else:
            raise MemoryBudgetError(
                f"{type(module).__name__} does not fit {format_bytes(wanted)} in PyTorch: with the "
                f"checkpoints found it takes {format_bytes(least)}, without any {format_bytes(seen.peak_bytes)}.",
                budget_bytes=wanted,
                least_feasible_bytes=least,
                lower_bound_bytes=sum(seen.fixed.values()),
                keep_all_peak_bytes=seen.peak_bytes,
            )
        for name in sorted(chosen, key=lambda name: -seconds[name])[:TRIES]:
            fewer = tuple(n for n in chosen if n != name)
            if (now := peak(fewer)) <= wanted:
                chosen, found = fewer, now
    step = 3 * seen.seconds[seen.forward]
    extra = sum(seconds[name] for name in chosen) / step if step else 0.0
    return CheckpointPlan(chosen, found, seen.peak_bytes, extra, dict(seen.fixed), wanted)


def _choices(whole: MemoryPlan, budget: int, every: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Choices of the planner, the fastest first, from those near the budget on; at last all regions."""
    found: list[tuple[str, ...]] = []
    share = 1.25
    while share > 0.5 and len(found) < TRIES:
        try:
            plan = whole.within(int(budget * share))
        except MemoryBudgetError:
            break
        again = {t for t, copy in zip(plan.schedule.task, plan.schedule.copy) if copy}
        names = tuple(t.name for i, t in enumerate(plan.problem.tasks) if i in again and t.op == INSIDE)
        if names not in found:
            found.append(names)
        share -= 0.025
    return [*found, every]
