"""The memory plan: plain data that can be printed, saved, judged and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.bytesize import parse_bytes
from ..core.cached import cached_property
from ..core.disk.files import PIECE
from ..core.supplied import Supplied
from ..core.table import printable
from .cost import locality
from .order.order import Predecessors, predecessors
from .placement.arena import place, place_disjoint
from .placement.liveness import host_ranges, live_ranges, Liveness, LiveRange
from .problem import CATEGORIES, padded, Problem, SOMETIMES
from .remat.schedule import Choice, make_schedule, Schedule
from .remat.steps import Steps

STRATEGIES = ("none", "inplace", "sharing")
CHECKPOINT_BYTES = 2 * PIECE
"""Extra bytes while a checkpoint is written or read: a piece of it as bytes, and the same as an array."""


@dataclass(frozen=True)
class MemoryPlan:
    """A memory plan: the place of every byte of a bound program and the schedule of its steps, in bytes.

    `peak_bytes` is what the program owns: fixed storage plus one arena. `offsets[b]` is the place of
    buffer `liveness.ranges[b]` in the arena. What waits in host memory, `host_ranges[h]`, lies at
    `host_offsets[h]` of `host_bytes` there; they are not part of the peak. `steps` are all that the network
    offers, where its owner is known; `bound_bytes` is what is proven of them, if somebody has asked, else 0.
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
    bound_bytes: int = field(default=0, compare=False)
    steps: Steps | None = field(default=None, compare=False, repr=False)
    rehearsed_seconds: float = field(default=0.0, compare=False)

    @property
    def problem(self) -> Problem:
        """The problem that was planned: tasks, values and their sizes in bytes."""
        return self.schedule.problem

    @property
    def arena_bytes(self) -> int:
        """Size of the one block that holds all temporaries; inference shares it."""
        return max(self.placed_bytes, self.problem.least_arena)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes beside the peak while a checkpoint of this training is written or read; 0 for inference."""
        return CHECKPOINT_BYTES if len(self.problem.tasks) > self.problem.num_forward else 0

    @property
    def peak_bytes(self) -> int:
        """Everything the bound program owns on its device."""
        return self.problem.fixed_total + self.arena_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """Proven lower bound: no plan for this network and these shapes owns less, whichever step it runs."""
        if self.bound_bytes:
            return self.bound_bytes
        own = self.problem.lower_bound_bytes
        return own if self.steps is None else min(own, self.steps.lower_bound_bytes)

    @property
    def how(self) -> str:
        """`method`, and how the step differs from the one that would run without a budget."""
        return f"{self.method}, {self.problem.instead}" if self.problem.instead else self.method

    def within(self, budget: int | str) -> MemoryPlan:
        """The plan for the same network, shapes and options within `budget` bytes, or text such as "4GiB".

        It may run another variant of the step. A plan read from a file knows only its own. Raises
        MemoryBudgetError.
        """
        if self.steps is not None:
            return self.steps.within(parse_bytes(budget))
        return plan_within.call(self.problem, parse_bytes(budget))

    @cached_property
    def max_live_bytes(self) -> int:
        """The most arena bytes in use at one step; `placed_bytes` equals it if no byte is lost to gaps."""
        return self.liveness.max_live_bytes

    @property
    def extra_time(self) -> float:
        """Time of recomputation and waits for copies / time of the step without, by isolated kernel times.

        0.0 means none. Plans are chosen by this number. Where a step has to keep less than it would like from
        the outset, such as the gates of recurrent layers, the cost of that is included.
        """
        return self._beyond_base(self.schedule.extra_time)

    @property
    def step_seconds(self) -> float:
        """Time of a step without recomputation: the sum of its kernels' isolated times."""
        return self.problem.step_seconds

    @property
    def predicted_seconds(self) -> float:
        """Predicted time of this plan's step: the time measured on scratch arrays, if it was tried on them
        when it was bound, else `modelled_seconds`.
        """
        if self.rehearsed_seconds:
            return self.rehearsed_seconds + self.schedule.waiting_seconds
        return self.modelled_seconds

    @cached_property
    def modelled_seconds(self) -> float:
        """Time of this plan's step by its kernels' times, with the cache model if a cache was measured."""
        if not self.problem.cache_bytes:
            return self.problem.step_seconds + self.schedule.extra_seconds
        return locality.step_seconds(self) + self.schedule.waiting_seconds

    @cached_property
    def predicted_extra_time(self) -> float:
        """Modelled time beyond a step without recomputation, as a share of that step. Negative where
        recomputing a value costs less than touching more memory.
        """
        if not self.problem.cache_bytes:
            return self.extra_time
        return self._beyond_base(self.modelled_seconds / make_plan(self.problem).modelled_seconds - 1)

    def _beyond_base(self, extra: float) -> float:
        """An extra of this step as a share of the time of the step that would run without a budget."""
        slowdown = self.problem.slowdown
        return extra if slowdown == 1 else (1 + extra) * slowdown - 1

    @property
    def recomputed(self) -> int:
        """Number of steps that recompute."""
        return sum(1 for k in self.schedule.copy if k)

    @cached_property
    def breakdown(self) -> dict[str, int]:
        """Bytes by category; they add up to `peak_bytes`.

        `workspace` is the scratch in use at the step where the arena is fullest, `activations` the rest
        of the arena.
        """
        fixed = self.problem.fixed_bytes
        result = {c: int(fixed.get(c, 0)) for c in CATEGORIES if c not in SOMETIMES or fixed.get(c)}
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
        """Number of values that wait for backward in host memory."""
        return len(self.host_ranges)

    # -- for people ----------------------------------------------------------------------------

    def summary(self) -> str:
        """The plan as a table."""
        from .report.certificate import certificate_of
        from .report.rows import rows_of

        parts, rows = rows_of(self)
        width = max(len(value) for _, value, _ in [*parts, *rows])

        def line(name: str, value: str, note: str) -> str:
            return f"  {name:<24}{value:>{width}}" + (f"   ({printable(note)})" if note else "")

        return "\n".join(
            [
                f"Memory plan: {len(self.problem.tasks)} operations, {printable(self.how)}",
                *(line(*row) for row in parts),
                "  " + "-" * (24 + width),
                *(line(*row) for row in rows),
                f"  {certificate_of(self)}",
            ]
        )

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

        write_html(self, path, [*plans, *along_budgets(self, budgets)], title)

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
        """The whole plan as text, with the version of its form and a digest."""
        from .files.planfile import dumps

        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> MemoryPlan:
        """The plan that `to_json` wrote, passed by the judge. Raises FormatError or PlanError."""
        from .files.planfile import loads

        return loads(text, cls)


plan_within: Supplied[Callable[[Problem, int], MemoryPlan]] = Supplied()
"""The planner for a budget in bytes, see `remat/search.py`."""


def make_plan(
    problem: Problem,
    choice: Choice | None = None,
    *,
    strategy: str = "sharing",
    method: str = "keep all",
    room: int = 0,
) -> MemoryPlan:
    """The plan for given mirror counts or runs (None: keep everything).

    `strategy` is what the arena may do: "none" gives every value bytes of its own, "inplace" lets
    operators overwrite their input, "sharing" also reuses the bytes of dead values. `room` is how many live
    bytes copies to and from host memory may occupy so that they overlap with kernels; see `make_schedule`.
    """
    schedule = make_schedule(problem, [0] * problem.num_forward if choice is None else choice, room)
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


def forward_bound(plan: MemoryPlan) -> int:
    """Arena bytes that every order of a step without backward needs, at the peak task of `plan`, or at any
    task by itself. O(tasks).

    Values that every order writes before that task and reads after it are live there.
    """
    problem = plan.problem
    live = plan.live_bytes()
    if not live:
        return 0
    tasks, made = problem.tasks, problem.producer
    t = plan.schedule.task[max(range(len(live)), key=live.__getitem__)]
    before, stack = {t}, [t]
    while stack:
        for v in tasks[stack.pop()].inputs:
            if made[v] >= 0 and made[v] not in before:
                before.add(made[v])
                stack.append(made[v])
    behind, later = {t}, set[int]()
    for u in range(t + 1, len(tasks)):
        if any(made[v] in behind for v in tasks[u].inputs):
            behind.add(u)
            later.update(tasks[u].inputs)
    before.discard(t)
    held = {v for v in later if made[v] in before and not problem.values[v].fixed}
    nbytes = sum(padded(problem.values[v].nbytes) for v in held)
    return max(problem.task_bound[0], nbytes + problem.together(t, None, held.__contains__, held))
