"""Messages among ranks beside the kernels: their modelled time, and their places in the order of tasks.

Messages go one after another, each as soon as what it carries is there, and kernels do not wait for them. The
place of a message in the order is where it must have ended: there its readers come, and later tasks may reuse
its bytes. So it is placed behind the backward task during which it ends by the modelled clock; its gradient
lives until then, which is what overlap costs:

    kernels    | d4 | d3 | d2 | d1 |
    messages        [== sum4 ==][== sum3 ==][== sum2 ==] ...
    order        d4   d3   d2   sum4   d1   sum3   sum2   sum1

A message that may run again, which gathers an array that ranks share, has its reader behind it: kernels wait
for all of it, the first time and each further one.

The last messages have no kernels left to hide behind: the step takes that much longer. If instead each has
its place right behind its gradient, kernels wait for all of it: fewer bytes, more time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from ..cost.ranks import Ranks
from ..problem import Problem, Task


def overlapped(problem: Problem, ranks: Ranks) -> tuple[int, ...]:
    """The tasks of `problem` in an order in which kernels wait for no message that could have ended later.

    A permutation: entry i is the number of the task that is to be the i-th. Messages stay in their order.
    O(tasks).
    """
    tasks, order = problem.tasks, list[int]()
    clock = stream = 0.0
    waiting: deque[tuple[float, int]] = deque()  # messages with their ends, in their order
    pending: set[int] = set()  # what they write
    made: dict[int, float] = {}  # when each value is there

    def place() -> None:
        order.append(waiting.popleft()[1])
        pending.difference_update(tasks[order[-1]].outputs)

    for t, task in enumerate(tasks):
        if task.exchanges and not task.recomputable:
            stream = max(_ready(made, task), stream) + ranks.seconds(task.exchanges, task.phases)
            waiting.append((stream, t))
            pending.update(task.outputs)
        else:
            while waiting and (task.update or not pending.isdisjoint(task.inputs)):
                place()
            order.append(t)
            clock += ranks.seconds(task.exchanges, task.phases) if task.exchanges else task.seconds
            made.update(dict.fromkeys(task.outputs, clock))
        while waiting and waiting[0][0] <= clock:
            place()
    return (*order, *(t for _, t in waiting))


def with_message_times(problem: Problem, ranks: Ranks) -> Problem:
    """`problem` with the seconds for which its kernels wait for each message, in the order that it has.

    A message begins when its last input is made and the message before it is over. O(tasks).
    """
    tasks = list(problem.tasks)
    clock = stream = 0.0
    made: dict[int, float] = {}  # when each value is there
    for t, task in enumerate(tasks):
        if task.exchanges and not task.recomputable:
            stream = max(_ready(made, task), stream) + ranks.seconds(task.exchanges, task.phases)
            tasks[t] = replace(task, seconds=max(0.0, stream - clock))
            clock = max(clock, stream)
        else:
            if task.exchanges:
                tasks[t] = replace(task, seconds=ranks.seconds(task.exchanges, task.phases))
            clock += tasks[t].seconds
        made.update(dict.fromkeys(task.outputs, clock))
    return replace(problem, tasks=tuple(tasks))


def _ready(made: Mapping[int, float], message: Task) -> float:
    """When all that a message carries is there."""
    return max((made.get(v, 0.0) for v in message.inputs), default=0.0)
