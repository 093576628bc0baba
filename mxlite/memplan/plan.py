"""The memory plan: plain data that can be printed, saved, judged and run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import FormatError
from .arena import place, place_disjoint
from .liveness import live_ranges, Liveness, LiveRange
from .order import Predecessors, predecessors
from .problem import CATEGORIES, padded, Problem, Task, Value
from .schedule import make_schedule, Schedule

VERSION = 1
STRATEGIES = ("none", "inplace", "sharing")
_TUPLES = ("inputs", "outputs", "in_place", "mutates", "always")  # of a task, lists in a file


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
        from .report.certificate import certificate_of

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
        lines.append(f"  {certificate_of(self)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """The table and a small drawing, for notebooks."""
        from .report import cell

        return cell(self)

    def to_html(
        self,
        path: Any,
        budgets: int | Sequence[int | str] | None = None,
        *,
        plans: Sequence[MemoryPlan] = (),
        title: str = "Memory plan",
    ) -> None:
        """Write one self-contained page: the arena as address against time, to zoom, search and print.

        budgets: also plan for these, or for so many between the least and keeping everything, and give the
        page a slider over them. That takes as long as planning does.  plans: made before, for the slider.
        """
        from .report import along_budgets, write_html

        write_html(self, path, [*plans, *along_budgets(self.problem, budgets)], title)

    def to_image(self, path: Any, *, title: str = "") -> None:
        """Write the arena as .svg, .png or .pdf, for print. Needs matplotlib (extra `viz`)."""
        from .report import write_image

        write_image(self, path, title)

    def to_text(
        self, width: int | None = None, *, height: int | None = None, unicode: bool | None = None
    ) -> str:
        """The arena drawn with characters, `width` wide (None: as the terminal), `height` rows high.

        unicode: None for what standard output can show, False for ASCII.
        """
        from .report import drawn

        return drawn(self, width, height, unicode)

    def to_trace(self, path: Any) -> None:
        """Write the steps in modelled time, with bytes as counters, as a trace for ui.perfetto.dev."""
        from .report import write_trace

        write_trace(self, path)

    # -- as data -------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole plan as text, with the version of its form."""
        problem, schedule = self.problem, self.schedule
        return json.dumps(
            {
                "mxlite_memory_plan": VERSION,
                "method": self.method,
                "budget_bytes": self.budget_bytes,
                "peak_bytes": self.peak_bytes,
                "arena_bytes": self.arena_bytes,
                "lower_bound_bytes": self.lower_bound_bytes,
                "keep_all_peak_bytes": self.keep_all_peak_bytes,
                "extra_time": self.extra_time,
                "breakdown": self.breakdown,
                "problem": {
                    "tasks": [asdict(t) for t in problem.tasks],
                    "values": [asdict(v) for v in problem.values],
                    "num_forward": problem.num_forward,
                    "fixed_bytes": dict(problem.fixed_bytes),
                    "least_arena": problem.least_arena,
                },
                "schedule": {
                    f.name: getattr(schedule, f.name) for f in fields(Schedule) if f.name != "problem"
                },
                "buffers": [
                    [self.offsets[b], r.nbytes, r.start, r.stop, r.members]
                    for b, r in enumerate(self.liveness.ranges)
                ],
                "placed_bytes": self.placed_bytes,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> MemoryPlan:
        """The plan that `to_json` wrote, passed by the judge. Raises FormatError or PlanError."""
        from .check import check

        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("mxlite_memory_plan") != VERSION:
                found = data.get("mxlite_memory_plan") if isinstance(data, dict) else None
                raise FormatError(
                    f"This is not a memory plan of version {VERSION}; its version is {found!r}."
                )
            plan = cls._from_data(data)
        except FormatError:
            raise
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise FormatError(f"The memory plan cannot be read: {type(error).__name__}: {error}.") from None
        check(plan)
        return plan

    @classmethod
    def _from_data(cls, data: Mapping[str, Any]) -> MemoryPlan:
        given = data["problem"]
        values = tuple(Value(str(v["name"]), int(v["nbytes"]), bool(v["fixed"])) for v in given["values"])
        tasks = tuple(Task(**{**t, **{k: _tuples(t[k]) for k in _TUPLES if k in t}}) for t in given["tasks"])
        problem = Problem(
            tasks, values, int(given["num_forward"]), dict(given["fixed_bytes"]), int(given["least_arena"])
        )
        if not 0 <= problem.num_forward <= len(tasks):
            raise FormatError(f"The memory plan has {problem.num_forward} forward tasks out of {len(tasks)}.")
        raw = data["schedule"]
        lists = {k: _tuples(raw[k]) for k in ("task", "copy", "inputs", "outputs", "value_of")}
        schedule = Schedule(problem=problem, num_forward=int(raw["num_forward"]), **lists)
        steps = len(schedule.task)
        if not steps == len(schedule.copy) == len(schedule.inputs) == len(schedule.outputs):
            raise FormatError("The memory plan's step lists have different lengths.")
        for numbers, limit, what in (
            (schedule.task, len(tasks), "task"),
            (schedule.value_of, len(values), "value"),
            ([i for row in schedule.inputs for i in row], len(schedule.value_of), "instance"),
            ([v for t in tasks for v in t.inputs], len(values), "value"),
        ):
            if any(not isinstance(n, int) or not 0 <= n < limit for n in numbers):
                raise FormatError(f"The memory plan names a {what} outside [0, {limit}).")
        for numbers, limit in (
            ([i for row in schedule.outputs for i in row], len(schedule.value_of)),
            ([v for t in tasks for v in t.outputs], len(values)),
        ):
            if any(not isinstance(n, int) or not -1 <= n < limit for n in numbers):
                raise FormatError(f"The memory plan has an output outside [-1, {limit}).")
        range_of = [-1] * len(schedule.value_of)
        workspace_of: dict[int, int] = {}
        ranges, offsets = [], []
        for b, (offset, nbytes, start, stop, members) in enumerate(data["buffers"]):
            ranges.append(LiveRange(tuple(members), int(start), int(stop), int(nbytes)))
            if not 0 <= start < stop <= steps:
                raise FormatError(
                    f"The memory plan's buffer {b} lives during [{start}, {stop}) of {steps} steps."
                )
            offsets.append(int(offset))
            for i in members:
                range_of[i] = b
            if not members:
                workspace_of[int(start)] = b
        budget, placed = data["budget_bytes"], int(data["placed_bytes"])
        if placed < max((o + r.nbytes for o, r in zip(offsets, ranges)), default=0):
            raise FormatError(f"The memory plan's buffers do not lie within its {placed} bytes.")
        return cls(
            schedule,
            Liveness(tuple(ranges), tuple(range_of), workspace_of),
            tuple(offsets),
            placed,
            None if budget is None else int(budget),
            str(data["method"]),
            int(data["keep_all_peak_bytes"]),
        )


def _tuples(rows: Any) -> Any:
    return tuple(_tuples(r) for r in rows) if isinstance(rows, list) else rows


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
