"""What every plan needs that runs nothing twice.

Backward reads results of the forward pass. Where nothing runs again, such a result is there from its making
to its last reader, whatever the order of tasks and wherever it lies. So when a backward task runs, the arena
holds at least

    results of the forward pass that it, or a task that waits for it, still reads
    + its other inputs and its outputs, but those that may lie where an input lay
    + its workspace

Of a step without backward, as inference is, nothing runs again at all: `forward_bound`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TYPE_CHECKING

import numpy as np

from .problem import padded, Problem

if TYPE_CHECKING:
    from .plan import MemoryPlan


class KeptBound(NamedTuple):
    """Bytes of the arena, all proven where no task runs again (but those that the user marked for it).

    kept: of the forward pass's results that backward reads, all of which are there when it begins. arena: no
    plan needs less. task: where that is so; -1 if it is when backward begins, or if there is no backward.
    """

    kept: int
    arena: int
    task: int


def kept_bound(problem: Problem) -> KeptBound:
    """The least arena without recomputation. O(tasks * values / 64) words and additions."""
    tasks, values, first = problem.tasks, problem.values, problem.num_forward
    made = problem.arena_producer
    # A marked task's results are dropped, and what it reads may be dropped too: none of that is proven.
    stays = [0 <= p < first and not tasks[p].mirror for p in made]
    sizes = np.array([padded(v.nbytes) if s else 0 for v, s in zip(values, stays)], np.int64)
    needed = [0] * len(tasks)  # a set of values, as bits: what a task and all that wait for it read
    for t in range(len(tasks) - 1, first - 1, -1):
        task = tasks[t]
        for v in task.inputs:
            if stays[v]:
                needed[t] |= 1 << v
            elif made[v] >= first:
                needed[made[v]] |= needed[t]
    together = 0
    for needs in needed:
        together |= needs
    kept = _total(together, sizes)
    least, at = max(kept, problem.least_bound), -1
    if problem.task_bound[0] > least:
        least, at = problem.task_bound
    for t in range(first, len(tasks)):
        needs = needed[t]
        others = problem.together(t, held=partial(_is_in, needs))
        if others > 0:
            nbytes = _total(needs, sizes) + others
            if nbytes > least:
                least, at = nbytes, t
    return KeptBound(kept, least, at)


def forward_bound(plan: MemoryPlan) -> int:
    """Bytes of the arena that every order of a step without backward needs, at the task where `plan` has
    most, or at any by itself. O(tasks).

    What was made before it, whatever the order, and is read behind it, whatever the order, is there.
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


def _is_in(needed: int, v: int) -> bool:
    """Whether value `v` is in a set of values."""
    return bool(needed >> v & 1)


def _total(needed: int, sizes: np.ndarray) -> int:
    """The sum of `sizes` over a set of values."""
    if not needed:
        return 0
    size = -(-len(sizes) // 8)
    bits = np.unpackbits(np.frombuffer(needed.to_bytes(size, "little"), np.uint8), bitorder="little")
    return int(sizes[: len(bits)][bits[: len(sizes)].astype(bool)].sum())
