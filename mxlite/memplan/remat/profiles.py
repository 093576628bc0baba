"""Tables of a problem's tasks that the search reads: who asks for the results of each, what it is recomputed
by and until when, and what updates wait for.
"""

from __future__ import annotations

import numpy as np

from ..problem import Problem

Array = np.ndarray


class Profiles:
    """The tables of one problem. `plain` says if they can describe it; otherwise they are empty.

    Backward tasks are numbered from 0 without updates; `never` is their number. `asked` are those that read
    each forward task, ascending, and `readers` the recomputable forward tasks that do.
    """

    def __init__(self, problem: Problem) -> None:
        self.num_forward = problem.num_forward
        self.plain = _plain(problem)
        if self.plain:
            self._read_tasks(problem)

    def _read_tasks(self, problem: Problem) -> None:
        tasks, n = problem.tasks, problem.num_forward
        self.backward = [t for t in range(n, len(tasks)) if not tasks[t].update]
        self.updates = problem.updates
        self.number = {t: j for j, t in enumerate(self.backward)}
        never = self.never = len(self.backward)
        self.droppable = np.array([t.recomputable and not t.mutates for t in tasks[:n]], bool)
        self.seconds = np.array([t.seconds for t in tasks[:n]], np.float64)
        self.asked: list[list[int]] = [[] for _ in range(n)]
        for j, t in enumerate(self.backward):
            for u in problem.reads[t]:
                self.asked[u].append(j)
        self.readers: list[list[int]] = [[] for _ in range(n)]
        for t in range(n):
            if self.droppable[t]:
                for u in problem.reads[t]:
                    self.readers[u].append(t)
        # A task that reads what backward task j changes can be recomputed up to j and no later.
        changes: dict[int, int] = {}
        for j, t in enumerate(self.backward):
            for v in tasks[t].mutates:
                changes.setdefault(v, j)
        self.limit = {
            t: min(changes[v] for v in tasks[t].inputs if v in changes)
            for t in range(n)
            if any(v in changes for v in tasks[t].inputs)
        }
        # For each update: the last backward task and the forward tasks whose copies it waits for.
        touching: dict[int, list[int]] = {}
        for t, row in enumerate(problem.updated_inputs):
            for v in row:
                touching.setdefault(v, []).append(t)
        after = []
        self.update_behind: list[list[int]] = []
        for t in self.updates:
            made = {p for v in tasks[t].inputs if (p := problem.producer[v]) >= n}
            waits = {t for v in tasks[t].mutates for t in touching.get(v, ())} | made
            after.append(max((self.number[p] for p in waits if p in self.number), default=never))
            self.update_behind.append([p for p in sorted(waits) if p < n and self.droppable[p]])
        self.update_after = np.array(after, np.int64)


def _plain(problem: Problem) -> bool:
    """True if the tables can describe a problem; they can for all lowered graphs.

    Every arena value must have one task that writes it, before all that read it; what backward writes must be
    read by backward; updates must come last, read no forward results and write none.
    """
    tasks, n, made = problem.tasks, problem.num_forward, problem.arena_producer
    if n == 0:
        return False
    seen: set[int] = set()
    for t, task in enumerate(tasks):
        if task.update and (t < n or problem.reads[t]):
            return False
        for v in task.inputs:
            if not problem.values[v].fixed and (made[v] < 0 or (made[v] >= t and not task.update)):
                return False
        for v in task.outputs:
            if v >= 0 and not problem.values[v].fixed:
                if v in seen or task.update:
                    return False
                seen.add(v)
    return True
