"""Tables from which live bytes of any candidate follow, as arrays: readers and scratch of each task and
changes of what it reads; size, producer and readers of each value; and which values may share bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..problem import padded, Problem

Array = np.ndarray


class Tables:
    """The tables of one problem. `plain` says if they can describe it; otherwise they are empty."""

    def __init__(self, problem: Problem, *, in_place: bool, sharing: bool) -> None:
        self.sharing = sharing
        self.num_forward = problem.num_forward
        backward = sum(not t.update for t in problem.tasks[problem.num_forward :])
        self.num_stages = self.num_forward + max(1, backward) if sharing else 1
        self.plain = _plain(problem)
        if self.plain:
            self._read_tasks(problem)
            self._read_values(problem)
            self._read_joins(problem, in_place)

    def _read_tasks(self, problem: Problem) -> None:
        tasks, n = problem.tasks, problem.num_forward
        self.backward = [t for t in range(n, len(tasks)) if not tasks[t].update]
        self.updates = problem.updates
        self.number = {t: j for j, t in enumerate(self.backward)}
        never = self.never = len(self.backward)
        self.kind = np.uint16 if never < 2**16 else np.int32
        self.droppable = np.array([t.recomputable and not t.mutates for t in tasks[:n]], bool)
        self.seconds = np.array([[t.seconds] for t in tasks[:n]], np.float64)
        # The backward tasks that read each forward task, ascending.
        self.asked: list[list[int]] = [[] for _ in range(n)]
        for j, t in enumerate(self.backward):
            for u in problem.reads[t]:
                self.asked[u].append(j)
        readers: list[list[int]] = [[] for _ in range(n)]
        for t in range(n):
            if self.droppable[t]:
                for u in problem.reads[t]:
                    readers[u].append(t)
        self.readers = readers
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
        # The first copy of these is never too late: backward requests it before it changes anything.
        self.early = {t for t, limit in self.limit.items() if self.asked[t] and self.asked[t][0] <= limit}
        # For each update: the last backward task it waits for, and the forward tasks whose copies it waits
        # for.
        touching: dict[int, list[int]] = {}
        for t, row in enumerate(problem.updated_inputs):
            for v in row:
                touching.setdefault(v, []).append(t)
        after, behind = [], []
        for i, t in enumerate(self.updates):
            made = {p for v in tasks[t].inputs if (p := problem.producer[v]) >= n}
            waits = {t for v in tasks[t].mutates for t in touching.get(v, ())} | made
            after.append(max((self.number[p] for p in waits if p in self.number), default=never))
            behind += [(i, p) for p in sorted(waits) if p < n and self.droppable[p]]
        self.update_after = np.array(after, np.int64)
        self.update_behind = _rounds(behind)

        scratch = [padded(t.workspace) for t in tasks]
        some = [t for t in range(n) if scratch[t]]
        self.forward_scratch = np.array(some, np.int64), _column(scratch[t] for t in some)
        some = [j for j, t in enumerate(self.backward) if scratch[t]]
        self.backward_scratch = np.array(some, np.int64), _column(scratch[self.backward[j]] for j in some)
        some = [i for i, t in enumerate(self.updates) if scratch[t]]
        self.update_scratch = np.array(some, np.int64), _column(scratch[self.updates[i]] for i in some)
        self.all_scratch = sum(scratch)
        self.steps = len(tasks)

    def _read_values(self, problem: Problem) -> None:
        """Number the values of the arena: those that forward tasks write first, then the others."""
        tasks, values, n = problem.tasks, problem.values, problem.num_forward
        made = problem.arena_producer
        rows = [v for t in range(n) for v in tasks[t].outputs if v >= 0 and made[v] >= 0]
        self.forward_values = len(rows)
        rows += [v for t in self.backward for v in tasks[t].outputs if v >= 0 and made[v] >= 0]
        row = self.row = {v: i for i, v in enumerate(rows)}
        forward = rows[: self.forward_values]
        self.size = np.array([padded(values[v].nbytes) for v in rows], np.int64)
        self.maker = np.array([made[v] if made[v] < n else self.number[made[v]] for v in rows], np.int64)
        always = [v in tasks[made[v]].always for v in rows]
        self.always = np.array(always, bool)[:, None]
        last_forward = [-1] * len(forward)
        last_backward = [self.never] * len(rows)
        again, to_update, back = [], [], []
        for t in range(n):
            for v in dict.fromkeys(tasks[t].inputs):
                if made[v] >= 0:
                    last_forward[row[v]] = t
                    if self.droppable[t]:
                        again.append((row[v], t))
        for j, t in enumerate(self.backward):
            for v in dict.fromkeys(tasks[t].inputs):
                if made[v] >= 0:
                    last_backward[row[v]] = j
                    if row[v] < self.forward_values:
                        back.append((row[v], j))
        for i, t in enumerate(self.updates):
            to_update += [(row[v], i) for v in dict.fromkeys(tasks[t].inputs) if made[v] >= 0]
        self.last_forward = _column(last_forward).astype(np.int32)
        self.last_backward = np.array(last_backward, np.int64)
        self.read_back = _rounds(back)
        self.read_again = _rounds(again)
        self.read_by_update = _rounds(to_update)

    def _read_joins(self, problem: Problem, in_place: bool) -> None:
        """Collect pairs that may share bytes: the first of every task, then the second of every task, ..."""
        tasks, n = problem.tasks, problem.num_forward
        self.forward_joins: list[Joins] = []
        self.backward_joins: list[Joins] = []
        rounds: dict[tuple[bool, int], list[tuple[int, int, int, int]]] = {}
        slots = 0
        for t, pairs in enumerate(problem.joins if in_place else ()):
            step = t if t < n else self.number.get(t, -1)
            donors = [d for _, d in pairs]
            slot = {}
            for d in dict.fromkeys(donors):
                if donors.count(d) > 1:
                    slot[d] = slots
                    slots += 1
            for r, (out, d) in enumerate(pairs):
                v, donor = self.row[tasks[t].outputs[out]], self.row[tasks[t].inputs[d]]
                rounds.setdefault((t < n, r), []).append((step, v, donor, slot.get(d, -1)))
        self.slots = slots
        for (forward, _), rows in sorted(rounds.items()):
            (self.forward_joins if forward else self.backward_joins).append(Joins(rows))


class Joins:
    """One (output, donor) pair from each of several tasks, by their rows.

    `slot` numbers a donor that its task offers to several outputs, because only one of them can have it.
    """

    def __init__(self, rows: Sequence[tuple[int, int, int, int]]) -> None:
        self.step, self.out, self.donor, slot = np.array(rows, np.int64).T
        self.shared = np.flatnonzero(slot >= 0)
        self.slot = slot[self.shared]

    def join(self, joined: Array, used: Array, first_row: int, here: Array) -> None:
        """Mark the outputs that join: those in `here` whose pairs before this one did not."""
        here &= ~joined[first_row + self.out]
        here[self.shared] &= ~used[self.slot]
        used[self.slot] |= here[self.shared]
        joined[first_row + self.out] |= here


def _column(numbers: Iterable[int]) -> Array:
    return np.array(list(numbers), np.int64)[:, None]


def _rounds(pairs: Sequence[tuple[int, int]]) -> list[tuple[Array, Array]]:
    """(row, reader) pairs in groups that name no row twice: the first of each row, then the second, ..."""
    rounds: list[list[tuple[int, int]]] = []
    seen: dict[int, int] = {}
    for row, reader in pairs:
        r = seen[row] = seen.get(row, -1) + 1
        if r == len(rounds):
            rounds.append([])
        rounds[r].append((row, reader))
    return [(a[:, 0], a[:, 1]) for a in (np.array(r, np.int64) for r in rounds)]


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
