"""Predicted time of a plan's step under a cache model: recently touched bytes are cheaper to touch.

A task has two times: `cold` where nothing it touches is in the cache, `warm` where all of it is. Its time
is interpolated by the share of its bytes that the cache has lost, which follows from their reuse distances
(see `reuse.py`). Addresses are those of the plan: a small arena is touched many times, so steps within a
budget may be quicker than the sum of their kernels' times suggests.

The cache is shared, with other programs and often with other machines on the same processor. While a task
runs, they touch `others_bytes_per_s`, and those bytes count in reuse distances as well. So a slow kernel
finds less in the cache than a quick one that touched as many bytes.

Known weaknesses. Others may do more or less when the step runs than they did when they were measured. Caches
before the last one are not distinguished.
"""

from __future__ import annotations

from math import fsum
from typing import NamedTuple, TYPE_CHECKING

from ..problem import Task
from ..remat.schedule import RUN
from .reuse import Reuse, Span

if TYPE_CHECKING:
    from ..plan import MemoryPlan


class Found(NamedTuple):
    """Cache model's result for a call: share of its bytes that the cache has lost, and predicted seconds."""

    lost: float
    seconds: float


def step_seconds(plan: MemoryPlan) -> float:
    """Predicted seconds of one step in steady state, without copies to host memory. O(steps log steps)."""
    return fsum(call.seconds for call in walk(plan))


def walk(plan: MemoryPlan) -> list[Found]:
    """Cache model's result for the call of each step; copies to host memory take no time."""
    problem, schedule, rows = plan.problem, plan.schedule, touched(plan)
    reuse = Reuse(2 * len(rows))
    for _ in range(2):  # the second round starts with the cache that the first has left
        result = []
        for kind, t, row in zip(schedule.kinds, schedule.task, rows):
            bytes_found = reuse.touch(row)
            nbytes = sum(x.nbytes for x in bytes_found)
            lost = fsum(x.missing(problem.cache_bytes) for x in bytes_found) / nbytes if nbytes else 0.0
            seconds = _seconds(problem.tasks[t], lost) if kind == RUN else 0.0
            reuse.others(int(problem.others_bytes_per_s * seconds))
            result.append(Found(lost, seconds))
    return result


def _seconds(task: Task, lost: float) -> float:
    """Time of a call that has lost the share `lost` of the bytes it touches."""
    return task.warm + (task.cold - task.warm) * lost if task.cold else task.seconds


def touched(plan: MemoryPlan) -> list[tuple[Span, ...]]:
    """Addresses that each step touches: those in the arena, and beyond it those of each fixed value."""
    problem, schedule, ranges = plan.problem, plan.schedule, plan.liveness.ranges
    end = plan.arena_bytes
    place: list[Span] = [(0, 0)] * len(problem.values)
    for v, value in enumerate(problem.values):
        if value.fixed:
            place[v] = (end, end := end + value.nbytes)
    buffer = [(o, o + r.nbytes) for o, r in zip(plan.offsets, ranges)]
    result: list[tuple[Span, ...]] = []
    for s, (kind, t) in enumerate(zip(schedule.kinds, schedule.task)):
        task = problem.tasks[t]
        row: dict[Span, None] = {}
        for i in (*schedule.inputs[s], *schedule.outputs[s]):
            if i >= 0 and (b := plan.liveness.range_of[i]) >= 0:
                row[buffer[b]] = None
        if kind == RUN:
            row |= dict.fromkeys(place[v] for v in (*task.inputs, *task.outputs, *task.mutates) if v >= 0)
            if s in plan.liveness.workspace_of:
                row[buffer[plan.liveness.workspace_of[s]]] = None
        result.append(tuple((low, high) for low, high in row if low < high))
    return result
