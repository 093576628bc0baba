"""Predicted time of a plan's step where a cache is known: what was touched lately costs less to touch again.

A task has two times: `seconds` where nothing it touches is in the cache, `warm` where all of it is. A page of
memory counts as cached if fewer than `cache_bytes` bytes were touched since it was touched last, its reuse
distance (R. Mattson, J. Gecsei, D. Slutz, I. Traiger 1970, "Evaluation techniques for storage hierarchies",
count distinct bytes; here repetitions count too, which keeps it linear). Addresses are those of the plan: a
small arena is touched again and again, so steps within a budget may be quicker than their kernels' sum says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .schedule import RUN

if TYPE_CHECKING:
    from .plan import MemoryPlan

PAGES_OF_CACHE = 512  # that it is divided into, at most
PAGES_OF_PLAN = 1 << 16  # that all memory is divided into, at most

Span = tuple[int, int]


def step_seconds(plan: MemoryPlan) -> float:
    """Predicted seconds of one step behind others, copies to host memory not counted.

    O(steps + pages touched).
    """
    cache = plan.problem.cache_bytes
    page = max(1, cache // PAGES_OF_CACHE, plan.peak_bytes // PAGES_OF_PLAN)
    spans, pages = _spans(plan, page)
    tasks, runs = plan.problem.tasks, plan.schedule.task
    touched = np.full(pages, -np.inf)
    now = total = 0.0
    for _ in range(2):  # the second step finds what the first has left
        total = 0.0
        for t, row in zip(runs, spans):
            task = tasks[t]
            count = cold = 0
            for low, high in row:
                count += high - low
                cold += int(np.count_nonzero(touched[low:high] < now - cache))
                touched[low:high] = now
            now += count * page
            warm = min(task.warm or task.seconds, task.seconds)
            total += warm + (task.seconds - warm) * (cold / count if count else 0.0)
    return total


def _spans(plan: MemoryPlan, page: int) -> tuple[list[set[Span]], int]:
    """For each step the pages it touches; how many there are: the arena's, then those of each fixed value."""
    problem, schedule, ranges = plan.problem, plan.schedule, plan.liveness.ranges
    low = -(-plan.arena_bytes // page) + 1
    place: list[Span] = [(0, 0)] * len(problem.values)
    for v, value in enumerate(problem.values):
        if value.fixed:
            place[v] = (low, low := low + max(1, -(-value.nbytes // page)))
    buffer = [(o // page, -(-(o + r.nbytes) // page)) for o, r in zip(plan.offsets, ranges)]
    result: list[set[Span]] = []
    for s, (kind, t) in enumerate(zip(schedule.kinds, schedule.task)):
        task = problem.tasks[t]
        row: set[Span] = set()
        for i in (*schedule.inputs[s], *schedule.outputs[s]):
            if i >= 0 and (b := plan.liveness.range_of[i]) >= 0:
                row.add(buffer[b])
        if kind == RUN:
            row.update(place[v] for v in (*task.inputs, *task.outputs, *task.mutates) if v >= 0)
            if s in plan.liveness.workspace_of:
                row.add(buffer[plan.liveness.workspace_of[s]])
        row.discard((0, 0))
        result.append(row)
    return result, low
