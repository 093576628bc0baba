"""Executes plans on real bytes: kernels that only hash, an arena whose free bytes are poisoned and fenced.

A kernel reads all bytes of its inputs and writes a hash of them, of its task and of the output's index: so
one wrong byte changes the result, and all results that depend on it. `reference` runs the tasks in their own
order with a separate array for every value. `run` follows the plan, in any order that its predecessors allow:
dead bytes are poisoned as soon as the last reader has finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_128

import numpy as np

from mxlite.memplan import MemoryPlan, Problem, STORE

POISON = np.frombuffer(np.float32(np.nan).tobytes()[:3] + b"\x7f", np.uint8)  # a NaN, as float32
FENCE = 256  # bytes, on either side


class Wrong(Exception):
    """A difference found in the bytes."""


def _made(t: int, place: int, read: Sequence[bytes], nbytes: int) -> bytes:
    key = shake_128(b"%d %d %d" % (t, place, len(read)))
    for content in read:
        key.update(b"%d " % len(content) + content)
    return key.digest(nbytes)


class _Fixed:
    """Arrays outside the arena: as they were before the step, and as tasks change them."""

    def __init__(self, problem: Problem) -> None:
        self.content = {
            v: shake_128(b"fixed %d" % v).digest(max(value.nbytes, 1))
            for v, value in enumerate(problem.values)
            if value.fixed
        }

    def change(self, t: int, values: Sequence[int], read: Sequence[bytes]) -> None:
        for place, v in enumerate(values):
            self.content[v] = _made(t, 1000 + place, [*read, self.content[v]], len(self.content[v]))


def reference(problem: Problem) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Content of each value of the arena when it is produced, and of each fixed one after the last task."""
    fixed, content = _Fixed(problem), dict[int, bytes]()
    for t, task in enumerate(problem.tasks):
        read = [fixed.content.get(v) or content.get(v, b"") for v in task.inputs]
        for place, v in enumerate(task.outputs):
            if v >= 0:
                made = _made(t, place, read, problem.values[v].nbytes)
                (fixed.content if problem.values[v].fixed else content)[v] = made
        fixed.change(t, task.mutates, read)
    return content, fixed.content


class Memory:
    """`nbytes` of poison between two fences. `owner` is the owner of each 64 bytes: a number, or -1."""

    def __init__(self, nbytes: int) -> None:
        cells = -(-nbytes // 64)
        self.whole = np.resize(POISON, 64 * cells + 2 * FENCE)
        self.bytes = self.whole[FENCE : FENCE + 64 * cells]
        self.owner = np.full(cells, -1)

    def write(self, who: int, low: int, content: bytes) -> None:
        high = low + len(content)
        if low % 64 or low < 0 or high > len(self.bytes):
            raise Wrong(f"[{low}, {high}) of {len(self.bytes)} B")
        self.bytes[low:high] = np.frombuffer(content, np.uint8)
        self.owner[low // 64 : -(-high // 64)] = who

    def read(self, low: int, nbytes: int) -> bytes:
        return self.bytes[low : low + nbytes].tobytes()

    def free(self, who: int) -> None:
        """Poison the bytes that `who` still owns."""
        for cell in np.flatnonzero(self.owner == who).tolist():
            self.bytes[64 * cell : 64 * cell + 64] = np.resize(POISON, 64)
            self.owner[cell] = -1

    def check(self) -> None:
        """Check that fences and all free bytes still are poison; raises Wrong otherwise."""
        free = np.ones(len(self.whole), bool)
        free[FENCE : FENCE + len(self.bytes)] = np.repeat(self.owner < 0, 64)
        if not np.array_equal(self.whole[free], np.resize(POISON, len(self.whole))[free]):
            raise Wrong("free bytes or a fence were written")


def run(plan: MemoryPlan, order: Sequence[int]) -> None:
    """Run all steps of `plan` in `order`. Raises Wrong if a byte differs from `reference`."""
    problem, schedule = plan.problem, plan.schedule
    values, kinds = problem.values, schedule.kinds
    expected, after = reference(problem)
    fixed, arena, host = _Fixed(problem), Memory(plan.arena_bytes), Memory(plan.host_bytes)
    left: dict[int, int] = {}
    for row in schedule.inputs:
        for i in row:
            left[i] = left.get(i, 0) + 1
    low_of = {i: low for r, low in zip(plan.liveness.ranges, plan.offsets) for i in r.members}
    host_of = {r.members[0]: low for r, low in zip(plan.host_ranges, plan.host_offsets)}

    def place(i: int) -> tuple[Memory, int]:
        return (host, host_of[i]) if i in host_of else (arena, low_of[i])

    def got(i: int) -> bytes:
        v = schedule.value_of[i]
        if values[v].fixed:
            return fixed.content[v]
        memory, low = place(i)
        content = memory.read(low, values[v].nbytes)
        if content != expected[v]:
            raise Wrong(f"{values[v].name!r} is not what was made")
        return content

    for s in order:
        t = schedule.task[s]
        task = problem.tasks[t]
        is_run = kinds[s] not in (STORE, STORE + 1)
        read = [got(i) for i in schedule.inputs[s]]
        if is_run and task.workspace:
            arena.write(-2 - s, plan.offsets[plan.liveness.workspace_of[s]], b"\xa5" * task.workspace)
        for at, o in enumerate(schedule.outputs[s]):
            if o < 0:
                continue
            v = schedule.value_of[o]
            made = _made(t, at, read, values[v].nbytes) if is_run else read[0]
            if values[v].fixed:
                fixed.content[v] = made
            else:
                memory, low = place(o)
                memory.write(o, low, made)
        if is_run:
            fixed.change(t, task.mutates, read)
        for o in schedule.outputs[s]:  # outputs must be complete at the end of the task
            if o >= 0 and not values[schedule.value_of[o]].fixed:
                got(o)
                if not left.get(o):
                    place(o)[0].free(o)
        arena.free(-2 - s)
        for i in schedule.inputs[s]:
            left[i] -= 1
            if not left[i] and not values[schedule.value_of[i]].fixed:
                place(i)[0].free(i)
    for memory in (arena, host):
        memory.check()
        if (memory.owner >= 0).any():
            raise Wrong("bytes are held to the end")
    if fixed.content != after:
        wrong = [values[v].name for v, content in after.items() if fixed.content[v] != content]
        raise Wrong(f"{wrong[0]!r} is another in the end")
