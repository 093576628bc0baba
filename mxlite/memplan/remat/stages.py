"""Stage model of a small problem: a schedule's cost follows from what is held when each stage begins.

A backward task with what is recomputed for it is a *stage*; stage -1 is the forward pass. Sets of forward
tasks are bits of one number, so there are at most MOST of them. For many schedules at once:

    missing      tasks that must be recomputed where some results are wanted and others are live
    most_bytes   live bytes at the peak step of a stage, from what is held when it begins and when it ends

Steps of a stage are processed from the last to the first: what is live after a step is known from those that
follow. A task's results count as one array, and updates run where the plain schedule has them: these figures
guide a search, and its results are costed exactly like every candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..problem import padded, Problem
from .profiles import Profiles

Array = np.ndarray

MOST = 60  # forward tasks
SCALE = 1 << 20  # the longest task's seconds, as a whole number
PART = 9  # bits of one table lookup


class Sums:
    """Sums of weights over the bits of numbers."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._parts = []
        for at in range(0, len(weights), PART):
            table = np.zeros(1, np.int64)
            for weight in weights[at : at + PART]:
                table = np.concatenate([table, table + weight])
            self._parts.append((at, len(table) - 1, table))

    def __call__(self, sets: Array | np.int64, among: int = -1) -> Array:
        """Sum for each of `sets`, which have bits of `among` alone."""
        total = np.zeros(np.shape(sets), np.int64)
        for at, ones, table in self._parts:
            if among >> at & ones:
                total += table[sets >> at & ones]
        return total


class Stages:
    """The tables of one problem, which `profiles` describes.

    Attributes of forward task u: `reads`, its inputs; `readers`, the recomputable tasks that read it (as bits
    `reader_sets`); `seconds` as integers; `scratch`; `donors`, the inputs it may overwrite, and the
    bytes `saved` by that; `made`, its bytes, and `last`, the task that reads them last in the forward pass;
    `size`, its bytes where a stage begins: what can still be read. Attributes of each stage: the tasks
    `asked` for, `later` the same for it and those after, `useful` tasks then, tasks `allowed` to be
    recomputed; bytes `before` its backward task runs and `during` that, without forward results; its
    `own_donors`, `own_saved`.
    """

    def __init__(self, problem: Problem, profiles: Profiles) -> None:
        n, stages = problem.num_forward, profiles.never
        self.number, self.stages = n, stages
        tasks, made_by = problem.tasks, problem.arena_producer
        free = profiles.droppable.tolist()
        self.free = _set(u for u in range(n) if free[u])
        self.reads = [_set(problem.reads[u]) for u in range(n)]
        self.readers = profiles.readers
        self.reader_sets = [_set(row) for row in self.readers]
        longest = max((t.seconds for t in tasks[:n]), default=0.0) or 1.0
        self.unit = longest / SCALE
        self.seconds = [round(t.seconds / self.unit) for t in tasks[:n]]
        self.asked = [_set(u for u in range(n) if j in profiles.asked[u]) for j in range(stages)] + [0]
        self.later = self.asked.copy()
        for j in reversed(range(stages)):
            self.later[j] |= self.later[j + 1]
        self.useful = [self._with_inputs(some) for some in self.later]
        limit = [profiles.limit.get(u, stages) for u in range(n)]
        self.allowed = [_set(u for u in range(n) if free[u] and j <= limit[u]) for j in range(stages)]
        nbytes = [padded(v.nbytes) if p >= 0 else 0 for v, p in zip(problem.values, made_by)]
        readers: list[list[int]] = [[] for _ in nbytes]
        for t, task in enumerate(tasks):
            for v in dict.fromkeys(task.inputs):
                readers[v].append(t)
        self.scratch = [padded(t.workspace) for t in tasks[:n]]
        self.made, self.last = [0] * n, [-1] * n
        self.size = np.zeros((stages + 1, n), np.int64)
        number = profiles.number
        for u in range(n):
            for v in tasks[u].outputs:
                if v < 0 or not nbytes[v] or not (readers[v] or v in tasks[u].always):
                    continue
                self.made[u] += nbytes[v]
                forward = [r for r in readers[v] if r < n]
                until = max((number[r] for r in readers[v] if r in number), default=-1)
                self.last[u] = max(self.last[u], *forward, -1)
                for j in range(stages):
                    if until >= j or any(free[r] and self.useful[j] >> r & 1 for r in forward):
                        self.size[j, u] += nbytes[v]
        self.donors, self.saved = [0] * n, [0] * n
        for u in range(n):
            for o, i in problem.joins[u]:
                if 0 <= (p := made_by[tasks[u].inputs[i]]) < n:
                    self.donors[u] |= 1 << p
                    self.saved[u] = nbytes[tasks[u].outputs[o]]
        self._read_backward(problem, profiles, nbytes, readers)
        self.cost = Sums(self.seconds)
        self.bytes = [Sums(row) for row in self.size.tolist()]

    def _with_inputs(self, tasks: int) -> int:
        """`tasks` and all they need to be recomputed."""
        for u in reversed(range(self.number)):
            if tasks >> u & 1 and self.free >> u & 1:
                tasks |= self.reads[u]
        return tasks

    def _read_backward(
        self, problem: Problem, profiles: Profiles, nbytes: Sequence[int], readers: Sequence[Sequence[int]]
    ) -> None:
        """Read backward's values; recomputation changes their live ranges only by updates that wait."""
        tasks, made_by, n, stages = problem.tasks, problem.arena_producer, self.number, self.stages
        number = profiles.number
        behind = {t: a if a < stages else 0 for t, a in zip(profiles.updates, profiles.update_after.tolist())}
        self.before, self.during = [0] * stages, [0] * stages
        self.own_donors, self.own_saved = [0] * stages, [0] * stages
        until: dict[int, int] = {}  # value -> the stage of its last read, after which it is dead
        updated: dict[int, int] = {}
        for j, t in enumerate(profiles.backward):
            self.during[j] += padded(tasks[t].workspace)
            for v in tasks[t].outputs:
                if v < 0 or not nbytes[v] or not (readers[v] or v in tasks[t].always):
                    continue
                updated[v] = max((behind[r] for r in readers[v] if r in behind), default=-1)
                until[v] = max([j, updated[v], *(number[r] for r in readers[v] if r in number)])
                for i in range(j, until[v] + 1):
                    self.during[i] += nbytes[v]
                    self.before[i] += nbytes[v] if i > j else 0
        for j, t in enumerate(profiles.backward):
            taken: set[int] = set()
            for o, i in problem.joins[t]:
                out, donor = tasks[t].outputs[o], tasks[t].inputs[i]
                if out in taken or donor in taken or out not in until:
                    continue
                if 0 <= made_by[donor] < n and not self.own_saved[j]:
                    self.own_donors[j], self.own_saved[j] = 1 << made_by[donor], nbytes[out]
                elif until.get(donor) == j and updated[donor] < j:
                    self.during[j] -= nbytes[out]
                else:
                    continue
                taken.update((out, donor))

    def missing(self, held: Array, wanted: Array | int) -> Array:
        """The tasks that must run, with `held` live, so that the results `wanted` are live too."""
        there = ~held
        found: Array = wanted & there
        some = any_of(found)  # bits that no label has need not be examined
        for u in reversed(range(self.number)):
            if some >> u & 1 and self.reads[u]:
                found |= (found >> u & 1) * self.reads[u] & there
                some |= self.reads[u]
        return found

    def read_by(self, tasks: Array) -> Array:
        """Union of the inputs of `tasks`."""
        found, some = np.zeros_like(tasks), any_of(tasks)
        for u in range(self.number):
            if some >> u & 1 and self.reads[u]:
                found |= (tasks >> u & 1) * self.reads[u]
        return found

    def forward_bytes(self, u: int) -> tuple[int, int]:
        """(bytes when forward task u runs, without those of tasks that only the stages will read; these
        tasks).
        """
        past = _set(x for x in range(u) if self.last[x] < u)
        live = sum(self.made[x] for x in range(u + 1) if not past >> x & 1)
        return live + self.scratch[u], past

    def most_bytes(self, j: int, held: Array, after: Array) -> Array:
        """Live bytes at the peak step of stage j, where `held` is live when it begins and `after` when
        it ends.
        """
        nbytes, seen = self.bytes[j], after | self.asked[j]
        live = nbytes(seen)
        overwritten = (seen & ~after & self.own_donors[j]) != 0
        most = live + self.during[j] - overwritten * self.own_saved[j]
        again = seen & ~held
        some = any_of(again)
        for u in reversed(range(self.number)):
            at = np.flatnonzero(again >> u & 1) if some >> u & 1 else ()
            if len(at):
                before = seen[at]
                read = self.reads[u] & ~before  # for the last time here
                again[at] |= read & ~held[at]
                some |= self.reads[u]
                more = live[at] + nbytes(read, self.reads[u])
                overwritten = (read & self.donors[u]) != 0
                total = more + (self.before[j] + self.scratch[u]) - overwritten * self.saved[u]
                most[at] = np.maximum(most[at], total)
                live[at], seen[at] = more - self.size[j, u], before | read
        return np.asarray(most)


def any_of(sets: Array) -> int:
    """Union of all `sets`."""
    return int(np.bitwise_or.reduce(sets, axis=None))


def _set(tasks: Iterable[int]) -> int:
    return sum(1 << u for u in tasks)
