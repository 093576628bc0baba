"""Liveness analysis: when each buffer is first written and last read, and who shares it in place.

An *instance* (one value, made by one run of its task) is live from the step that writes it to the last step
that reads it. When a step is the last to read an instance and its operator can work in place, the output takes
over the bytes:

    step      0    1    2    3    4
    conv      #====+                      conv is last read at 1 by bn: bn writes over it,
    bn             #====+                 relu over bn; one buffer, live over [0, 5)
    relu                #=========+

The union of such instances is a **buffer**; with its offset it is all that the arena knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .problem import padded
from .schedule import Schedule


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A buffer of `nbytes` needed during steps [start, stop). `members` are its instances, in order of writing.

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
        if not self.ranges:
            return 0
        stop = max(r.stop for r in self.ranges)
        change = np.zeros(stop + 1, np.int64)
        starts = np.fromiter((r.start for r in self.ranges), np.int64, len(self.ranges))
        stops = np.fromiter((r.stop for r in self.ranges), np.int64, len(self.ranges))
        sizes = np.fromiter((padded(r.nbytes) for r in self.ranges), np.int64, len(self.ranges))
        np.add.at(change, starts, sizes)
        np.subtract.at(change, stops, sizes)
        return int(np.cumsum(change).max())


def live_ranges(schedule: Schedule, *, in_place: bool = True, workspaces: bool = True) -> Liveness:
    """Live ranges of everything a plan has to place. O(steps)."""
    problem = schedule.problem
    tasks, values, value_of = problem.tasks, problem.values, schedule.value_of
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
    for s, t in enumerate(schedule.task):
        task = tasks[t]
        ins, outs = schedule.inputs[s], schedule.outputs[s]
        joins: dict[int, int] = {}
        if in_place and task.in_place:
            taken: set[int] = set()
            for out_value, in_value in task.in_place:
                out = _of_value(outs, value_of, out_value)
                if out < 0 or out in joins or values[out_value].fixed or values[in_value].fixed:
                    continue
                donor = _of_value(ins, value_of, in_value)
                if (
                    donor < 0
                    or last_read[donor] != s
                    or donor in taken
                    or ins.count(donor) != 1
                    or values[out_value].nbytes != values[in_value].nbytes
                ):
                    continue
                joins[out] = donor
                taken.add(donor)
        for out in outs:
            if out < 0:
                continue
            v = value_of[out]
            if values[v].fixed:
                continue
            end = max(last_read[out], s) + 1
            if out in joins:
                b = buffer_of[joins[out]]
                members[b].append(out)
                stop[b] = max(stop[b], end)
            else:
                b = len(members)
                members.append([out])
                start.append(s)
                stop.append(end)
                nbytes.append(values[v].nbytes)
            buffer_of[out] = b
        if workspaces and task.workspace:
            workspace_of[s] = len(members)
            members.append([])
            start.append(s)
            stop.append(s + 1)
            nbytes.append(task.workspace)
    ranges = tuple(LiveRange(tuple(m), a, b, n) for m, a, b, n in zip(members, start, stop, nbytes))
    return Liveness(ranges, tuple(buffer_of), workspace_of)


def _of_value(instances: tuple[int, ...], value_of: tuple[int, ...], value: int) -> int:
    """The instance in `instances` that holds `value`, or -1."""
    for i in instances:
        if i >= 0 and value_of[i] == value:
            return i
    return -1
