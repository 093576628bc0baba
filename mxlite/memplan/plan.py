"""The memory plan: plain data that can be printed, saved, judged and run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core.bytesize import format_bytes
from .arena import place, place_disjoint
from .liveness import live_ranges, Liveness
from .order import Predecessors, predecessors
from .problem import CATEGORIES, padded, Problem
from .schedule import make_schedule, Schedule

STRATEGIES = ("none", "inplace", "sharing")


@dataclass(frozen=True)
class MemoryPlan:
    """Where every byte of a bound program lies, and what runs when. All sizes are bytes.

    `peak_bytes` is what the program owns: fixed storage plus one arena. `offsets[b]` is the place of
    buffer `liveness.ranges[b]` in the arena.
    """

    schedule: Schedule
    liveness: Liveness
    offsets: tuple[int, ...]
    placed_bytes: int
    budget_bytes: int | None = None
    method: str = "keep all"
    keep_all_peak_bytes: int = 0

    @property
    def problem(self) -> Problem:
        return self.schedule.problem

    @property
    def arena_bytes(self) -> int:
        """Size of the one block that holds all temporaries; inference shares it."""
        return max(self.placed_bytes, self.problem.least_arena)

    @property
    def peak_bytes(self) -> int:
        """Everything the bound program owns on its device."""
        return self.problem.fixed_total + self.arena_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """Proven: no plan for this network and these shapes owns less."""
        return self.problem.lower_bound_bytes

    @cached_property
    def max_live_bytes(self) -> int:
        """The most arena bytes in use at one step; `placed_bytes` equals it if no byte is lost to gaps."""
        return self.liveness.max_live_bytes

    @property
    def extra_time(self) -> float:
        """Predicted recompute time / time of the step without recompute; 0.0 is none."""
        return self.schedule.extra_time

    @property
    def step_seconds(self) -> float:
        """Predicted time of a step in which nothing runs again."""
        return self.problem.step_seconds

    @property
    def predicted_seconds(self) -> float:
        """Predicted time of this plan's step."""
        return self.problem.step_seconds + self.schedule.extra_seconds

    @property
    def recomputed(self) -> int:
        """Steps that run a task again."""
        return sum(1 for k in self.schedule.copy if k)

    @cached_property
    def breakdown(self) -> dict[str, int]:
        """Bytes by category; they add up to `peak_bytes`.

        `workspace` is the scratch in use at the step where the arena is fullest, `activations` the rest
        of the arena.
        """
        result = {c: int(self.problem.fixed_bytes.get(c, 0)) for c in CATEGORIES}
        result["workspace"] = self._workspace_at_peak()
        result["activations"] = self.arena_bytes - result["workspace"]
        return result

    def _workspace_at_peak(self) -> int:
        live = self.live_bytes()
        if not live:
            return 0
        step = max(range(len(live)), key=live.__getitem__)
        b = self.liveness.workspace_of.get(step)
        return padded(self.liveness.ranges[b].nbytes) if b is not None else 0

    def live_bytes(self) -> list[int]:
        """Arena bytes in use at each step."""
        change = [0] * (len(self.schedule.task) + 1)
        for r in self.liveness.ranges:
            change[r.start] += padded(r.nbytes)
            change[r.stop] -= padded(r.nbytes)
        live, total = [], 0
        for c in change[:-1]:
            total += c
            live.append(total)
        return live

    @cached_property
    def predecessors(self) -> Predecessors:
        """For each step the steps that must be done before it, reuse of bytes included."""
        return predecessors(self.schedule, self.liveness, self.offsets)

    # -- for people ----------------------------------------------------------------------------

    def summary(self) -> str:
        """The plan as a table."""
        rows = [(c, format_bytes(n)) for c, n in self.breakdown.items()]
        rows.append(("peak", format_bytes(self.peak_bytes)))
        width = max(len(v) for _, v in rows)
        lines = [f"  {name:<24}{value:>{width}}" for name, value in rows]
        lines.insert(-1, "  " + "-" * (24 + width))
        lines.insert(0, f"Memory plan: {len(self.problem.tasks)} operations, {self.method}")
        if self.budget_bytes is not None:
            lines.append(f"  {'budget':<24}{format_bytes(self.budget_bytes):>{width}}")
        if self.keep_all_peak_bytes:
            lines.append(f"  {'peak, keeping all':<24}{format_bytes(self.keep_all_peak_bytes):>{width}}")
        lines.append(f"  {'proven lower bound':<24}{format_bytes(self.lower_bound_bytes):>{width}}")
        share = f"{100 * self.extra_time:.1f} %"
        lines.append(
            f"  {'predicted extra time':<24}{share:>{width}}   ({self.recomputed} operations run again)"
        )
        if self.problem.costs:
            took = f"{1e3 * self.predicted_seconds:.4g} ms"
            lines.append(f"  {'predicted step':<24}{took:>{width}}   ({self.problem.costs})")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def to_html(self, path: Any) -> None:
        """Write one self-contained page: the arena as address against time."""
        from .report import write_html

        write_html(self, path)

    # -- as data -------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole plan as text, with the version of its form and a digest."""
        from .planfile import dumps

        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> MemoryPlan:
        """The plan that `to_json` wrote, passed by the judge. Raises FormatError or PlanError."""
        from .planfile import loads

        return loads(text)


def make_plan(
    problem: Problem, mirror: Any = None, *, strategy: str = "sharing", method: str = "keep all"
) -> MemoryPlan:
    """The plan for given mirror counts (None: keep everything).

    `strategy` is what the arena may do: "none" gives every value bytes of its own, "inplace" lets
    operators overwrite their input, "sharing" also reuses the bytes of the dead.
    """
    schedule = make_schedule(problem, mirror if mirror is not None else [0] * problem.num_forward)
    liveness = live_ranges(schedule, in_place=strategy != "none")
    if strategy == "sharing":
        placement = place(liveness.ranges, liveness.max_live_bytes)
    else:
        placement = place_disjoint(liveness.ranges)
    return MemoryPlan(schedule, liveness, placement.offsets, placement.nbytes, method=method)
