"""Predicted time of a plan's step where a cache is known: what was touched lately costs less to touch again.

A task has two times: `seconds` where nothing it touches is in the cache, `warm` where all of it is. Its time
lies between them by the share of its bytes whose reuse distance (see `reuse.py`) is `cache_bytes` or more.
Addresses are those of the plan: a small arena is touched again and again, so steps within a budget may be
quicker than their kernels' sum says.

Known weaknesses. There is one cache, while processors have several: `warm` is the time behind a run of the
same call, with all in the nearest cache that holds it. Times of each call at some distances, instead of two,
would mend that. Where others use the cache too, it holds less at times than what was measured. And a real
cache does not drop strictly what was touched longest ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .reuse import Reuse, Span
from .schedule import RUN

if TYPE_CHECKING:
    from .plan import MemoryPlan


def step_seconds(plan: MemoryPlan) -> float:
    """Predicted seconds of one step behind others, copies to host memory not counted. O(steps log steps)."""
    cache, tasks = plan.problem.cache_bytes, plan.problem.tasks
    schedule, rows = plan.schedule, touched(plan)
    reuse = Reuse(2 * len(rows))
    for row in rows:
        reuse.touch(row)
    total = 0.0
    for kind, t, row in zip(schedule.kinds, schedule.task, rows):  # this one finds what the first has left
        found = reuse.touch(row)
        if kind != RUN:
            continue
        task = tasks[t]
        nbytes = sum(x.nbytes for x in found)
        cold = sum(x.beyond(cache) for x in found)
        warm = min(task.warm or task.seconds, task.seconds)
        total += warm + (task.seconds - warm) * (cold / nbytes if nbytes else 0.0)
    return total


def touched(plan: MemoryPlan) -> list[tuple[Span, ...]]:
    """For each step the addresses it touches: of the arena, and behind it of each fixed value its own."""
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
