"""The memory plan: plain data that can be printed, saved, judged and run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import FormatError
from .arena import place, place_disjoint
from .liveness import host_ranges, live_ranges, Liveness, LiveRange
from .order import Predecessors, predecessors
from .problem import CATEGORIES, HostLink, padded, Problem, Task, Value
from .schedule import FETCH, make_schedule, RUN, Schedule, STORE

VERSION = 2  # 1 has no host memory, and is read too
STRATEGIES = ("none", "inplace", "sharing")
_TUPLES = ("inputs", "outputs", "in_place", "mutates", "always")  # of a task, lists in a file


@dataclass(frozen=True)
class MemoryPlan:
    """Where every byte of a bound program lies, and what runs when. All sizes are bytes.

    `peak_bytes` is what the program owns: fixed storage plus one arena. `offsets[b]` is the place of
    buffer `liveness.ranges[b]` in the arena. What waits in host memory, `host_ranges[h]`, lies at
    `host_offsets[h]` of `host_bytes` there; they are not part of the peak.
    """

    schedule: Schedule
    liveness: Liveness
    offsets: tuple[int, ...]
    placed_bytes: int
    budget_bytes: int | None = None
    method: str = "keep all"
    keep_all_peak_bytes: int = 0
    host_ranges: tuple[LiveRange, ...] = ()
    host_offsets: tuple[int, ...] = ()
    host_bytes: int = 0

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
        """Predicted time of recomputing and of waiting for copies / time of the step without; 0.0 is none."""
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
        return predecessors(self.schedule, self.liveness, self.offsets, self.hosted)

    @cached_property
    def hosted(self) -> dict[int, tuple[int, int]]:
        """For each instance in host memory its bytes [low, high) there."""
        return {r.members[0]: (o, o + r.nbytes) for r, o in zip(self.host_ranges, self.host_offsets)}

    @property
    def offloaded(self) -> int:
        """Values that wait for backward in host memory."""
        return len(self.host_ranges)

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
        if self.problem.host is not None:
            wait = 1e3 * self.schedule.waiting_seconds
            lines.append(
                f"  {'host memory':<24}{format_bytes(self.host_bytes):>{width}}   "
                f"({self.offloaded} arrays copied out and back, {wait:.3g} ms of waiting for them)"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def to_html(self, path: Any) -> None:
        """Write one self-contained page: the arena as address against time."""
        from .report import write_html

        write_html(self, path)

    # -- as data -------------------------------------------------------------------------------

    def to_json(self, *, problem: bool = True) -> str:
        """The whole plan as text, with the version of its form; without its problem if `problem` is False."""
        return json.dumps(self._data() | ({"problem": _problem_data(self.problem)} if problem else {}))

    def _data(self) -> dict[str, Any]:
        schedule = self.schedule
        return {
            "mxlite_memory_plan": VERSION,
            "method": self.method,
            "budget_bytes": self.budget_bytes,
            "peak_bytes": self.peak_bytes,
            "arena_bytes": self.arena_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "keep_all_peak_bytes": self.keep_all_peak_bytes,
            "extra_time": self.extra_time,
            "breakdown": self.breakdown,
            "schedule": {f.name: getattr(schedule, f.name) for f in fields(Schedule) if f.name != "problem"},
            "buffers": [
                [self.offsets[b], r.nbytes, r.start, r.stop, r.members]
                for b, r in enumerate(self.liveness.ranges)
            ],
            "placed_bytes": self.placed_bytes,
            "host_buffers": [
                [o, r.nbytes, r.start, r.stop, r.members] for o, r in zip(self.host_offsets, self.host_ranges)
            ],
            "host_bytes": self.host_bytes,
        }

    @classmethod
    def from_json(cls, text: str, problem: Problem | None = None) -> MemoryPlan:
        """The plan that `to_json` wrote, passed by the judge; of `problem`, whatever the text says of it.

        Raises FormatError or PlanError.
        """
        from .check import check

        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("mxlite_memory_plan") not in (1, VERSION):
                found = data.get("mxlite_memory_plan") if isinstance(data, dict) else None
                raise FormatError(
                    f"This is not a memory plan of version {VERSION}; its version is {found!r}."
                )
            plan = cls._from_data(data, problem or _read_problem(data["problem"]))
        except FormatError:
            raise
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise FormatError(f"The memory plan cannot be read: {type(error).__name__}: {error}.") from None
        check(plan)
        return plan

    @classmethod
    def _from_data(cls, data: Mapping[str, Any], problem: Problem) -> MemoryPlan:
        tasks, values = problem.tasks, problem.values
        raw = data["schedule"]
        lists = {k: _tuples(raw[k]) for k in ("task", "copy", "inputs", "outputs", "value_of")}
        lists["kind"] = _tuples(raw.get("kind", []))
        schedule = Schedule(problem=problem, num_forward=int(raw["num_forward"]), **lists)
        steps = len(schedule.task)
        if not steps == len(schedule.copy) == len(schedule.inputs) == len(schedule.outputs):
            raise FormatError("The memory plan's step lists have different lengths.")
        if len(schedule.kind) not in (0, steps) or any(k not in (RUN, STORE, FETCH) for k in schedule.kind):
            raise FormatError("The memory plan's steps are of unknown kinds.")
        for s, k in enumerate(schedule.kinds):
            if k != RUN and not (len(schedule.inputs[s]) == len(schedule.outputs[s]) == 1):
                raise FormatError(f"Step {s} of the memory plan copies more or less than one array.")
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
        ranges, offsets = _buffers(data["buffers"], steps, len(schedule.value_of))
        for b, r in enumerate(ranges):
            for i in r.members:
                range_of[i] = b
            if not r.members:
                workspace_of[r.start] = b
        budget, placed = data["budget_bytes"], int(data["placed_bytes"])
        host, host_offsets = _buffers(data.get("host_buffers", []), steps, len(schedule.value_of))
        host_bytes = int(data.get("host_bytes", 0))
        if any(len(r.members) != 1 for r in host):
            raise FormatError("The memory plan keeps more or less than one array in a buffer of host memory.")
        for nbytes, places, of in ((placed, offsets, ranges), (host_bytes, host_offsets, host)):
            if nbytes < max((o + r.nbytes for o, r in zip(places, of)), default=0):
                raise FormatError(f"The memory plan's buffers do not lie within its {nbytes} bytes.")
        return cls(
            schedule,
            Liveness(ranges, tuple(range_of), workspace_of),
            offsets,
            placed,
            None if budget is None else int(budget),
            str(data["method"]),
            int(data["keep_all_peak_bytes"]),
            host,
            host_offsets,
            host_bytes,
        )


def _buffers(rows: Any, steps: int, instances: int) -> tuple[tuple[LiveRange, ...], tuple[int, ...]]:
    """Buffers and their offsets as `to_json` writes them."""
    ranges, offsets = [], []
    for b, (offset, nbytes, start, stop, members) in enumerate(rows):
        ranges.append(LiveRange(tuple(members), int(start), int(stop), int(nbytes)))
        if not 0 <= start < stop <= steps:
            raise FormatError(
                f"The memory plan's buffer {b} lives during [{start}, {stop}) of {steps} steps."
            )
        if any(not isinstance(i, int) or not 0 <= i < instances for i in members):
            raise FormatError(f"The memory plan's buffer {b} holds an instance outside [0, {instances}).")
        offsets.append(int(offset))
    return tuple(ranges), tuple(offsets)


def _problem_data(problem: Problem) -> dict[str, Any]:
    return {
        "tasks": [{k: getattr(t, k) for k in Task.__slots__} for t in problem.tasks],
        "values": [{k: getattr(v, k) for k in Value.__slots__} for v in problem.values],
        "num_forward": problem.num_forward,
        "fixed_bytes": dict(problem.fixed_bytes),
        "least_arena": problem.least_arena,
        "host": None if problem.host is None else asdict(problem.host),
    }


def _read_problem(given: Mapping[str, Any]) -> Problem:
    values = tuple(Value(str(v["name"]), int(v["nbytes"]), bool(v["fixed"])) for v in given["values"])
    tasks = tuple(Task(**{**t, **{k: _tuples(t[k]) for k in _TUPLES if k in t}}) for t in given["tasks"])
    link = given.get("host")
    problem = Problem(
        tasks,
        values,
        int(given["num_forward"]),
        dict(given["fixed_bytes"]),
        int(given["least_arena"]),
        host=None if link is None else HostLink(**link),
    )
    if not 0 <= problem.num_forward <= len(tasks):
        raise FormatError(f"The memory plan has {problem.num_forward} forward tasks out of {len(tasks)}.")
    return problem


def _tuples(rows: Any) -> Any:
    return tuple(_tuples(r) for r in rows) if isinstance(rows, list) else rows


def make_plan(
    problem: Problem,
    mirror: Any = None,
    *,
    strategy: str = "sharing",
    method: str = "keep all",
    room: int = 0,
) -> MemoryPlan:
    """The plan for given mirror counts (None: keep everything).

    `strategy` is what the arena may do: "none" gives every value bytes of its own, "inplace" lets
    operators overwrite their input, "sharing" also reuses the bytes of the dead. `room` is how many live
    bytes copies to and from host memory may take to overlap with kernels; see `make_schedule`.
    """
    counts = mirror if mirror is not None else [0] * problem.num_forward
    schedule = make_schedule(problem, counts, room)
    liveness = live_ranges(schedule, in_place=strategy != "none")
    if strategy == "sharing":
        placement = place(liveness.ranges, liveness.max_live_bytes)
    else:
        placement = place_disjoint(liveness.ranges)
    plan = MemoryPlan(schedule, liveness, placement.offsets, placement.nbytes, method=method)
    if not schedule.kind:
        return plan
    waiting = host_ranges(schedule)
    host = place(waiting)
    return replace(plan, host_ranges=waiting, host_offsets=host.offsets, host_bytes=host.nbytes)
