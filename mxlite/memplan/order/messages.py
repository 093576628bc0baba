"""Messages among ranks beside the kernels: their modelled time, and where updates wait for them.

Messages go one after another, as soon as what they carry is there, and kernels do not wait for them: only an
update that reads a sum over ranks does. So the update is placed behind the backward task during which the sum
arrives; its gradient lives until then, which is what overlap costs:

    kernels    | d4 | d3 | d2 | d1 | w4 w3 w2 w1
    messages        [== sum4 ==][== sum3 ==] ...
    update of 4                 ^ not before d2

The last messages have no kernels left to hide behind: the step takes that much longer. Without overlap each
update comes at once, and the kernels wait for the whole message before it: fewer bytes, more time.
"""

from __future__ import annotations

from dataclasses import replace

from ..cost.rank_link import RankLink
from ..problem import Problem


def with_messages(problem: Problem, link: RankLink, ranks: int, *, overlap: bool) -> Problem:
    """`problem` with the modelled time of its messages, and with updates that come later if they `overlap`.

    Seconds are those for which kernels wait: of each message, or of those at the end. O(tasks).
    """
    tasks, n = list(problem.tasks), problem.num_forward
    took = {t: link.seconds(problem.message_bytes(t), ranks) for t, x in enumerate(tasks) if x.collective}
    if not took:
        return problem
    for t, seconds in took.items():
        tasks[t] = replace(tasks[t], seconds=0.0 if overlap else seconds)
    if not overlap:
        updates = (t for t in problem.updates if tasks[t].not_before >= 0)
        for t in updates:
            tasks[t] = replace(tasks[t], not_before=-1)
        return replace(problem, tasks=tuple(tasks))
    clock = busy_until = 0.0
    arrives: dict[int, float] = {}
    over: list[tuple[float, int]] = []  # when each backward task is over
    for t, task in enumerate(tasks):
        if t in took:
            busy_until = arrives[t] = max(clock, busy_until) + took[t]
        elif not task.update:
            clock += task.seconds
            if t >= n:
                over.append((clock, t))
    last = max(took)
    tasks[last] = replace(tasks[last], seconds=max(0.0, busy_until - clock))
    for t in problem.updates:
        awaited = [arrives[p] for v in tasks[t].inputs if (p := problem.producer[v]) in arrives]
        if awaited and over:
            at = next((b for end, b in over if end >= max(awaited)), over[-1][1])
            tasks[t] = replace(tasks[t], not_before=at)
    return replace(problem, tasks=tuple(tasks))
