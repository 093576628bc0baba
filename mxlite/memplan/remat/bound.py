"""Lower bound on the arena of a step without backward, such as inference, where nothing is recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problem import padded

if TYPE_CHECKING:
    from ..plan import MemoryPlan


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
