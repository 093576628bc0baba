"""A plan's arena as rectangles, which all pictures of it draw."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan import MemoryPlan
from ..problem import padded
from ..remat.schedule import FETCH, STORE

COLOURS = {  # in the order of every key; distinguishable with the common kinds of colour blindness
    "forward": "#4c78a8",
    "recomputed": "#f58518",
    "backward": "#54a24b",
    "fetched": "#a67cc0",
    "workspace": "#a8a8a8",
}
MEANINGS = {
    "forward": "made in forward",
    "recomputed": "made again for backward",
    "backward": "made in backward",
    "fetched": "copied back from host memory",
    "workspace": "workspace",
}
KINDS = tuple(COLOURS)
"""Kinds of buffers, by the task that wrote their first content."""


@dataclass(frozen=True, slots=True)
class Box:
    """A buffer: bytes [offset, offset + nbytes) of the arena during steps [start, stop).

    `nbytes` is rounded up to the alignment, as the arena is. `names` are the values that lie in it one after
    the other, the first written by step `start`; a workspace has the name of its task.
    """

    start: int
    stop: int
    offset: int
    nbytes: int
    kind: str
    names: tuple[str, ...]


def boxes(plan: MemoryPlan) -> list[Box]:
    """One box for each buffer, in the plan's order. O(steps)."""
    schedule, problem = plan.schedule, plan.problem
    made = []
    for r, offset in zip(plan.liveness.ranges, plan.offsets):
        task = schedule.task[r.start]
        if r.members:
            names = tuple(dict.fromkeys(problem.values[schedule.value_of[i]].name for i in r.members))
        else:
            names = (problem.tasks[task].name,)
        made.append(Box(r.start, r.stop, offset, padded(r.nbytes), kind_of(plan, r.start, r.members), names))
    return made


def kind_of(plan: MemoryPlan, step: int, members: tuple[int, ...]) -> str:
    """The kind of a buffer whose live range begins at step `step`."""
    if not members:
        return "workspace"
    if plan.schedule.kinds[step] == FETCH:
        return "fetched"
    if plan.schedule.copy[step]:
        return "recomputed"
    return "forward" if plan.schedule.task[step] < plan.problem.num_forward else "backward"


def kinds_in(plan: MemoryPlan) -> list[str]:
    """The kinds that a key has to explain: "fetched" only if something waits in host memory."""
    return [k for k in KINDS if k != "fetched" or plan.offloaded]


def step_name(plan: MemoryPlan, step: int) -> str:
    """Name of a step: its task, with "(again)" if it recomputes, or the copy that it makes."""
    name = plan.problem.tasks[plan.schedule.task[step]].name
    kind = plan.schedule.kinds[step]
    if kind in (STORE, FETCH):
        value = plan.problem.values[plan.schedule.value_of[plan.schedule.inputs[step][0]]].name
        return f"{value} to host memory" if kind == STORE else f"{value} from host memory"
    return f"{name} (again)" if plan.schedule.copy[step] else name


def peak_step(plan: MemoryPlan) -> int:
    """The first step at which most arena bytes are live; 0 in an empty plan."""
    live = plan.live_bytes()
    return max(range(len(live)), key=live.__getitem__, default=0)
