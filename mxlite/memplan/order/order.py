"""Predecessors of each step: which steps must have finished before a step may start.

A plan is sound in its own sequence. An engine with several workers runs whatever is ready, so every reason
for "before" has to be an edge:

* a step reads what another made (data),
* a step writes fixed storage that others read or wrote before (arguments, states),
* a buffer takes bytes that another buffer had: its first writer waits for the last readers of the old one;
  this order is not in the graph at all,
* an output written in place waits for the other readers of the input it destroys.

A copy to host memory is a reader like any other, and host memory changes hands as the arena does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from ..placement.liveness import Liveness
from ..problem import padded
from ..remat.schedule import RUN, Schedule

Predecessors = tuple[tuple[int, ...], ...]


def predecessors(
    schedule: Schedule,
    liveness: Liveness,
    offsets: tuple[int, ...],
    hosted: Mapping[int, tuple[int, int]] | None = None,
) -> Predecessors:
    """For each step the earlier steps it must wait for; edges that follow from others may be left out.

    `hosted` maps instances in host memory to their bytes [low, high) there. O(n log n) in steps and
    pieces of the arena.
    """
    tasks = schedule.problem.tasks
    values = schedule.problem.values
    made_at = [-1] * len(schedule.value_of)
    readers: list[list[int]] = [[] for _ in schedule.value_of]
    fixed_writer: dict[int, int] = {}
    fixed_readers: dict[int, list[int]] = {}
    occupied, hosted_by, hosted = Bytes(), Bytes(), hosted or {}
    kinds = schedule.kinds
    # For each range the steps after whose end its bytes are free.
    last_use: list[list[int]] = [[] for _ in liveness.ranges]
    result: list[tuple[int, ...]] = []

    for s, t in enumerate(schedule.task):
        wait: set[int] = set()
        task, runs = tasks[t], kinds[s] == RUN
        for i in schedule.inputs[s]:
            v = schedule.value_of[i]
            if values[v].fixed:
                if v in fixed_writer:
                    wait.add(fixed_writer[v])
                fixed_readers.setdefault(v, []).append(s)
            elif made_at[i] >= 0:
                wait.add(made_at[i])
            readers[i].append(s)
        written = [
            schedule.value_of[o] for o in schedule.outputs[s] if o >= 0 and values[schedule.value_of[o]].fixed
        ]
        for v in (*(task.mutates if runs else ()), *written):
            wait.update(fixed_readers.pop(v, ()))
            if v in fixed_writer:
                wait.add(fixed_writer[v])
            fixed_writer[v] = s
        new_ranges = [liveness.workspace_of[s]] if s in liveness.workspace_of else []
        for o in schedule.outputs[s]:
            if o < 0:
                continue
            made_at[o] = s
            if o in hosted:
                for old in hosted_by.take(*hosted[o], o):
                    wait.update(readers[old] or [made_at[old]])
            b = liveness.range_of[o]
            if b < 0:
                continue
            members = liveness.ranges[b].members
            if members[0] == o:
                new_ranges.append(b)
            else:  # in place: the other readers of the overwritten input come first
                donor = members[members.index(o) - 1]
                wait.update(readers[donor])
                wait.add(made_at[donor])
        for b in new_ranges:
            low = offsets[b]
            for old in occupied.take(low, low + padded(liveness.ranges[b].nbytes), b):
                wait.update(last_use[old])
        for i in schedule.inputs[s]:
            b = liveness.range_of[i]
            if b >= 0 and liveness.ranges[b].members[-1] == i:
                last_use[b].append(s)
        for b in new_ranges:
            if not last_use[b]:
                last_use[b].append(s)
        for o in schedule.outputs[s]:
            b = liveness.range_of[o] if o >= 0 else -1
            if b >= 0 and liveness.ranges[b].members[-1] == o:
                last_use[b].append(s)
        wait.discard(s)
        wait.discard(-1)
        result.append(tuple(sorted(wait)))
    return tuple(result)


class Bytes:
    """Last owner of each byte of the arena: half-open pieces [low, high) in order, without overlap."""

    def __init__(self) -> None:
        self.low: list[int] = []
        self.high: list[int] = []
        self.owner: list[int] = []

    def take(self, low: int, high: int, owner: int) -> list[int]:
        """Give [low, high) to `owner` and return the former owners of any part of it."""
        if low >= high:
            return []
        first = bisect_right(self.low, low) - 1
        if first < 0 or self.high[first] <= low:
            first += 1
        last = first
        while last < len(self.low) and self.low[last] < high:
            last += 1
        former = self.owner[first:last]
        lows, highs, owners = [low], [high], [owner]
        if first < last:
            if self.low[first] < low:
                lows.insert(0, self.low[first])
                highs.insert(0, low)
                owners.insert(0, self.owner[first])
            if self.high[last - 1] > high:
                lows.append(high)
                highs.append(self.high[last - 1])
                owners.append(self.owner[last - 1])
        self.low[first:last] = lows
        self.high[first:last] = highs
        self.owner[first:last] = owners
        return former
