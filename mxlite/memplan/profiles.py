"""Live bytes of many candidates at once, without writing their schedules down.

For mirror counts of 0 and 1 everything that `make_schedule` and `live_buffers` decide follows from a few
numbers of each task, so they are computed for all candidates together, as rows of one array:

    first need     the backward task that a dropped task runs again for: the first that reads it, or reads
                   what is made from it again. One walk over the forward tasks, backwards.
    position       of each step: by sorting the dropped tasks by first need; updates are counted in.
    last read      of each value: the largest position of its readers. Copy 0 of a dropped value is read by
                   forward tasks alone, copy 1 by all others.
    profile        a value adds its bytes from its step to its last read. One written over its input begins a
                   step later, which is the same sum as that of one buffer for both.

Arrays are (tasks or values, candidates), so that a task's row lies in one piece; profiles are (candidates,
steps). Exact: whole numbers throughout, and seconds are added in the order of task numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .problem import padded, Problem

Array = np.ndarray

CHUNK_BYTES = 96 * 2**20  # of the arrays of candidates that are looked at together, about


class Profiles:
    """The tables of one problem. `plain` says whether they describe it; otherwise there is nothing here."""

    def __init__(self, problem: Problem, *, in_place: bool, sharing: bool) -> None:
        self.sharing = sharing
        self.num_forward = problem.num_forward
        self.plain = _plain(problem)
        if self.plain:
            self._read_tasks(problem)
            self._read_values(problem)
            self._read_joins(problem, in_place)

    # -- tables ------------------------------------------------------------------------------------

    def _read_tasks(self, problem: Problem) -> None:
        tasks, n = problem.tasks, problem.num_forward
        self.backward = [t for t in range(n, len(tasks)) if not tasks[t].update]
        self.updates = problem.updates
        self.number = {t: j for j, t in enumerate(self.backward)}
        never = self.never = len(self.backward)
        self.kind = np.uint16 if never < 2**16 else np.int32
        self.droppable = np.array([t.recomputable and not t.mutates for t in tasks[:n]], bool)
        self.seconds = np.array([[t.seconds] for t in tasks[:n]], np.float64)
        base = [never] * n
        for j, t in enumerate(self.backward):
            for u in problem.reads[t]:
                base[u] = min(base[u], j)
        self.base = np.array(base, self.kind)
        readers: list[list[int]] = [[] for _ in range(n)]
        for t in range(n):
            if self.droppable[t]:
                for u in problem.reads[t]:
                    readers[u].append(t)
        self.readers = readers
        # A task that reads what backward task j changes can run again until j and no later.
        changes: dict[int, int] = {}
        for j, t in enumerate(self.backward):
            for v in tasks[t].mutates:
                changes.setdefault(v, j)
        self.limit = {
            t: min(changes[v] for v in tasks[t].inputs if v in changes)
            for t in range(n)
            if any(v in changes for v in tasks[t].inputs)
        }
        # Of each update: the last backward task it waits for, and forward tasks, whose copies it waits for.
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

    def _read_values(self, problem: Problem) -> None:
        """Values of the arena: those that forward tasks make first, then the others."""
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
        again, to_update = [], []
        for t in range(n):
            for v in dict.fromkeys(tasks[t].inputs):
                if made[v] >= 0:
                    last_forward[row[v]] = t
                    if self.droppable[t]:
                        again.append((row[v], t))
        for j, t in enumerate(self.backward):
            for v in tasks[t].inputs:
                if made[v] >= 0:
                    last_backward[row[v]] = j
        for i, t in enumerate(self.updates):
            to_update += [(row[v], i) for v in dict.fromkeys(tasks[t].inputs) if made[v] >= 0]
        self.last_forward = _column(last_forward).astype(np.int32)
        self.last_backward = np.array(last_backward, np.int64)
        self.read_again = _rounds(again)
        self.read_by_update = _rounds(to_update)

    def _read_joins(self, problem: Problem, in_place: bool) -> None:
        """The pairs that may share bytes: the first of every task, then the second of every task, ..."""
        tasks, n = problem.tasks, problem.num_forward
        self.forward_joins: list[_Joins] = []
        self.backward_joins: list[_Joins] = []
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
            (self.forward_joins if forward else self.backward_joins).append(_Joins(rows))

    # -- candidates --------------------------------------------------------------------------------

    @property
    def chunk(self) -> int:
        """Candidates that are looked at together."""
        rows = 2 * self.num_forward + len(self.backward) + len(self.updates) + len(self.size)
        return int(min(256, max(4, CHUNK_BYTES // (48 * rows))))

    def costs(self, dropped: Array) -> tuple[Array, Array]:
        """(bytes, seconds) of each candidate: column k of `dropped` (forward tasks, candidates), bool."""
        need = self._first_needs(dropped)
        again = need < self.never
        seconds = np.cumsum(np.where(again, self.seconds, 0.0), axis=0)[-1]
        return self._bytes(need, again), seconds

    def _first_needs(self, dropped: Array) -> Array:
        """For each forward task the backward task before which it runs again; `never` if it does not."""
        may = dropped & self.droppable[:, None]
        never = self.never
        # At least this: nothing, or never.
        least = np.where(may, self.kind(0), self.kind(never))
        need = np.empty_like(least)
        some = may.any(axis=1)
        need[:] = np.where(some, self.base, never)[:, None]
        rows, floor = list(need), list(least)
        for u in np.flatnonzero(some)[::-1].tolist():
            row = rows[u]
            for w in self.readers[u]:
                np.minimum(row, rows[w], out=row)
            np.maximum(row, floor[u], out=row)
            if u in self.limit:
                row[row > self.limit[u]] = never
        return need

    def _bytes(self, need: Array, again: Array) -> Array:
        n, never, count = self.num_forward, self.never, need.shape[1]
        # How many run again before each backward task; the last row is that of `never`.
        bins = need + np.arange(count) * (never + 1)
        run = np.bincount(bins.ravel(), minlength=count * (never + 1)).reshape(count, never + 1)
        run[:, never] = 0
        np.cumsum(run, axis=1, out=run)
        backward = np.empty((never + 1, count), np.int32)
        backward[:never] = run.T[:never]
        backward[:never] += np.arange(n, n + never, dtype=np.int32)[:, None]
        backward[never] = -1
        steps = n + never + int(run[:, -1].max(initial=0)) + len(self.updates)
        copies = self._copies(need, again)
        updates = self._updates(backward, copies, again, steps)

        last = backward[self.last_backward]
        for rows, readers in self.read_again:
            last[rows] = np.maximum(last[rows], copies[readers])
        for rows, readers in self.read_by_update:
            last[rows] = np.maximum(last[rows], updates[readers])

        f = self.forward_values
        maker = self.maker[:f]
        twice = again[maker]
        # Copy 0 of what forward makes, copy 1 of it, and what backward makes.
        first = np.where(twice, -1, last[:f])
        np.maximum(first, self.last_forward, out=first)
        begin = np.empty((2 * f + len(last) - f, count), np.int32)
        begin[:f] = maker[:, None]
        begin[f : 2 * f] = np.maximum(copies[maker], 0)
        begin[2 * f :] = backward[self.maker[f:]]
        end = np.concatenate((first, last))
        made = end >= 0
        made[:f] |= self.always[:f]
        made[f:] |= self.always
        made[f : 2 * f] &= twice
        np.maximum(end, begin, out=end)
        end += 1
        joined = self._joined(made, first, last, copies, again, backward)
        size = np.concatenate((self.size[:f], self.size))
        if not self.sharing:
            total: Array = (size[:, None] * (made & ~joined)).sum(axis=0) + self.all_scratch
            at, nbytes = self.forward_scratch
            total += (again[at] * nbytes).sum(axis=0)
            return total
        begin += joined
        np.copyto(end, begin, where=~made)
        return self._peak(size, begin, end, steps, copies, again, backward, updates)

    def _copies(self, need: Array, again: Array) -> Array:
        """Positions of copies 1; -2 where a task does not run again."""
        order = np.argsort(np.ascontiguousarray(need.T), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(need))[None], axis=1)
        copies = rank.T + need
        copies += self.num_forward
        copies[~again] = -2
        positions: Array = copies.astype(np.int32)
        return positions

    def _updates(self, backward: Array, copies: Array, again: Array, steps: int) -> Array:
        """Positions of the updates; moves those of all other steps to where the updates leave them."""
        number, count = len(self.updates), backward.shape[1]
        if not number:
            return np.empty((0, count), np.int32)
        at = np.maximum(backward[self.update_after], self.num_forward - 1)
        for rows, readers in self.update_behind:
            at[rows] = np.maximum(at[rows], copies[readers])
        # Updates before each step: of all behind earlier ones, and of those behind the same by their number.
        start = np.arange(count) * steps
        behind = np.bincount((at + start).ravel(), minlength=count * steps).reshape(count, steps)
        before = np.cumsum(behind, axis=1)
        before -= behind
        order = np.argsort(at.T, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(number)[None], axis=1)
        flat = before.ravel()
        last = backward[-1].copy()
        backward += flat.take(np.maximum(backward, 0) + start).astype(np.int32)
        backward[-1] = last
        copies += np.where(again, flat.take(np.maximum(copies, 0) + start), 0).astype(np.int32)
        positions: Array = (at + 1 + rank.T).astype(np.int32)
        return positions

    def _joined(
        self, made: Array, first: Array, last: Array, copies: Array, again: Array, backward: Array
    ) -> Array:
        """Which of the copies in `made` are written over an input that is read no more."""
        f = self.forward_values
        joined = np.zeros_like(made)
        used = np.zeros((3, self.slots, made.shape[1]), bool)
        for j in self.forward_joins:
            out, donor, step = j.out, j.donor, j.step
            j.join(joined, used[0], 0, made[out] & (first[donor] == step[:, None]))
            j.join(joined, used[1], f, made[f + out] & (last[donor] == copies[step]))
        # What backward overwrites may be a kept value or a copy of a dropped one: only one of them is there.
        for j in self.backward_joins:
            j.join(joined, used[2], f, made[f + j.out] & (last[j.donor] == backward[j.step]))
        return joined

    def _peak(
        self,
        size: Array,
        begin: Array,
        end: Array,
        steps: int,
        copies: Array,
        again: Array,
        backward: Array,
        updates: Array,
    ) -> Array:
        count = begin.shape[1]
        width = steps + 1
        start = np.arange(count) * width
        weight = np.broadcast_to(size[:, None].astype(np.float64), begin.shape).ravel()
        live = np.bincount((begin + start).ravel(), weight, count * width)
        live -= np.bincount((end + start).ravel(), weight, count * width)
        live = live.reshape(count, width)
        # Sums of floats, but of whole numbers below 2**53: exact.
        np.cumsum(live, axis=1, out=live)
        flat = live.reshape(-1)
        at, nbytes = self.forward_scratch
        live[:, at] += nbytes.T
        # A step that is not there is given a place behind all others, where nothing lives.
        places = np.where(again[at], copies[at], steps)
        flat[places + start] += np.where(again[at], nbytes, 0)
        for (at, nbytes), position in ((self.backward_scratch, backward), (self.update_scratch, updates)):
            flat[position[at] + start] += nbytes
        peak: Array = live.max(axis=1).astype(np.int64)
        return peak


class _Joins:
    """One (output, donor) pair of each of several tasks, by their rows.

    `slot` numbers a donor that its task offers to several outputs, for only one of them can have it.
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
    """Whether a problem has nothing that the tables do not know; lowered graphs never have.

    Every arena value has one task that makes it, before all that read it; what backward makes is read by
    backward; updates come last, read nothing of forward's and make nothing.
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
