"""Liveness analysis: live ranges of buffers, and which instances share a buffer in place.

An *instance* (one value, written by one run of its task) is live from the step that writes it to the last
step that reads it. When a step is the last to read an instance and its operator can work in place, the output
reuses its bytes:

    step      0    1    2    3    4
    conv      #====+                      conv is last read at 1 by bn: bn writes over it,
    bn             #====+                 relu over bn; one buffer, live over [0, 5)
    relu                #=========+

The union of such instances is a **buffer**; its live range and offset are all that the arena knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..problem import ALIGN
from ..remat.kinds import RUN, STORE

if TYPE_CHECKING:
    from ..remat.schedule import Schedule


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A buffer of `nbytes` needed during steps [start, stop). `members` are its instances, in order of
    writing.

    A workspace has no members; it is live during its one step.
    """

    members: tuple[int, ...]
    start: int
    stop: int
    nbytes: int


@dataclass(frozen=True)
class Liveness:
    """`ranges` of a schedule; `range_of[i]` is that of instance i, -1 if it is not in the arena.

    `workspace_of` maps a step to its workspace's range.
    """

    ranges: tuple[LiveRange, ...]
    range_of: tuple[int, ...]
    workspace_of: dict[int, int]

    @property
    def max_live_bytes(self) -> int:
        """The largest sum of live bytes at one step: no arena for these ranges is smaller."""
        return most_live(
            [r.start for r in self.ranges], [r.stop for r in self.ranges], [r.nbytes for r in self.ranges]
        )


@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of a schedule as parallel lists, with only what a search needs."""

    members: list[list[int]]
    start: list[int]
    stop: list[int]
    nbytes: list[int]
    buffer_of: list[int]
    workspace_of: dict[int, int]

    @property
    def max_live_bytes(self) -> int:
        return most_live(self.start, self.stop, self.nbytes)


def most_live(start: Sequence[int], stop: Sequence[int], nbytes: Sequence[int]) -> int:
    """The peak sum of `nbytes`, each rounded up to the alignment, over overlapping ranges [start, stop)."""
    if not start:
        return 0
    sizes = -(-np.array(nbytes, np.int64) // ALIGN) * ALIGN
    steps = max(stop)
    change = np.bincount(start, sizes, steps + 1) - np.bincount(stop, sizes, steps + 1)
    # Floats, but sums of whole numbers below 2**53: exact.
    return int(np.cumsum(change).max())


def host_ranges(schedule: Schedule) -> tuple[LiveRange, ...]:
    """Live ranges of values that wait in host memory, in the order of the copies out. O(steps)."""
    start: dict[int, int] = {}
    stop: dict[int, int] = {}
    for s, kind in enumerate(schedule.kind):
        if kind == STORE:
            start[schedule.outputs[s][0]] = s
        elif kind != RUN:
            stop[schedule.inputs[s][0]] = s + 1
    size = [v.nbytes for v in schedule.problem.values]
    return tuple(LiveRange((i,), s, stop.get(i, s + 1), size[schedule.value_of[i]]) for i, s in start.items())


def live_ranges(schedule: Schedule, *, in_place: bool = True, workspaces: bool = True) -> Liveness:
    """Live ranges of everything a plan has to place. O(steps)."""
    b = live_buffers(schedule, in_place=in_place, workspaces=workspaces)
    ranges = tuple(LiveRange(tuple(m), *r) for m, *r in zip(b.members, b.start, b.stop, b.nbytes))
    return Liveness(ranges, tuple(b.buffer_of), b.workspace_of)


def live_buffers(schedule: Schedule, *, in_place: bool = True, workspaces: bool = True) -> Buffers:
    """As `live_ranges`, in the form that a search needs. O(steps)."""
    problem = schedule.problem
    tasks, value_of = problem.tasks, schedule.value_of
    all_joins = problem.joins
    fixed = [v.fixed for v in problem.values]
    size = [v.nbytes for v in problem.values]
    last_read = [-1] * len(value_of)
    for s, row in enumerate(schedule.inputs):
        for i in row:
            last_read[i] = s

    buffer_of = [-1] * len(value_of)
    members: list[list[int]] = []
    start: list[int] = []
    stop: list[int] = []
    nbytes: list[int] = []
    workspace_of: dict[int, int] = {}
    steps = zip(schedule.kinds, schedule.task, schedule.inputs, schedule.outputs)
    for s, (kind, t, ins, outs) in enumerate(steps):
        if kind == STORE:
            continue
        joined: dict[int, int] = {}
        if in_place and kind == RUN:
            for at, donor_at in all_joins[t]:
                out, donor = outs[at], ins[donor_at]
                if out >= 0 and last_read[donor] == s and out not in joined and donor not in joined.values():
                    joined[out] = donor
        for out in outs:
            if out < 0 or fixed[v := value_of[out]]:
                continue
            end = last_read[out] + 1
            if end <= s:
                end = s + 1
            if out in joined:
                b = buffer_of[joined[out]]
                members[b].append(out)
                if stop[b] < end:
                    stop[b] = end
            else:
                b = len(members)
                members.append([out])
                start.append(s)
                stop.append(end)
                nbytes.append(size[v])
            buffer_of[out] = b
        if workspaces and kind == RUN and (need := tasks[t].workspace):
            workspace_of[s] = len(members)
            members.append([])
            start.append(s)
            stop.append(s + 1)
            nbytes.append(need)
    return Buffers(members, start, stop, nbytes, buffer_of, workspace_of)
