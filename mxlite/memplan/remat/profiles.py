"""Live bytes of many candidates at once, without writing their schedules down.

Everything that `make_schedule` and `live_buffers` decide for mirror counts of 0 and more follows from a few
numbers of each task and copy, so they are computed for all candidates together, as rows of one array:

    first need     the backward task that a copy runs for: the first that reads it, or reads what is computed
                   from it. One walk over the forward tasks, backwards.
    position       of each step: by sorting the copies by first need; updates are counted in.
    last read      of each copy of a value: the largest position of its readers.
    profile        a value adds its bytes from its step to its last read. One written in place over its input
                   begins a step later, which gives the same sum as one buffer for both.

Arrays are (tasks or values, candidates), so that a task's row is contiguous; profiles are (candidates,
steps). Exact: integers throughout, and seconds are added in the order of task numbers.
"""

from __future__ import annotations

import numpy as np

from .profile_tables import Array, Tables

CHUNK_BYTES = 96 * 2**20  # of the arrays of candidates that are costed together, about


class Profiles(Tables):
    """Bytes and seconds of the candidates of one problem; only if its tables are `plain`."""

    def chunk(self, most: int) -> int:
        """Number of candidates with counts up to `most` that are costed together."""
        rows = (1 + most) * (self.num_forward + self.forward_values) + len(self.size) + self.steps
        return int(min(256, max(4, CHUNK_BYTES // (24 * rows))))

    def costs(self, counts: Array, most: int) -> tuple[Array, Array, Array]:
        """(bytes, seconds, True where these are unknown) of each candidate.

        Column k of `counts` (forward tasks, candidates) is candidate k, with counts in [0, most].
        """
        live, seconds, unknown = self.stages(counts, most)
        return live.max(axis=1), seconds, unknown

    def stages(self, counts: Array, most: int) -> tuple[Array, Array, Array]:
        """As `costs`, with bytes (candidates, stages) for each stage: each forward task is one, and each
        backward task with all that is recomputed for it, and with the updates after the one before. Without
        sharing there is one stage, of all bytes.
        """
        counts = np.where(self.droppable[:, None], counts, 0).astype(np.int8)
        need, unknown = self._first_needs(counts, most)
        return self._bytes(counts, need, most), self.seconds_of(need < self.never, most), unknown

    def stages_of_runs(self, num: Array, stage: Array) -> Array:
        """Bytes (candidates, stages) of candidates whose forward tasks are recomputed `num` (candidates,
        forward tasks) times, before the backward tasks that `stage` lists, concatenated.
        """
        most = max(1, int(num.max(initial=0)))
        need = np.full((num.size, most), self.never, self.kind)
        need[np.arange(most) < num.reshape(-1, 1)] = stage
        need = need.reshape(len(num), -1).T
        return self._bytes(None, np.ascontiguousarray(need), most)

    def seconds_of(self, again: Array, most: int) -> Array:
        """Seconds of the copies that run `again` (`most` rows for each forward task, candidates)."""
        seconds = np.where(again, np.repeat(self.seconds, most, axis=0), 0.0)
        total: Array = np.cumsum(seconds, axis=0)[-1]
        return total

    def _first_needs(self, counts: Array, most: int) -> tuple[Array, Array]:
        """For each copy, in the order of tasks, the backward task before which it runs; `never` if it does
        not. Sets counts to 0 of tasks whose copies would read what backward has changed by then.

        A task runs for the first `count` of the backward tasks that request it, or a result computed from it.
        If a task that must not be recomputed is kept, which others must be kept too depends on the order in
        which that is found out, if there are several copies: then the candidate's cost is unknown.
        """
        never = self.never
        unknown = np.zeros(counts.shape[1], bool)
        zero, ever = self.kind(0), self.kind(never)
        highest = counts.max(axis=1, initial=0).tolist()
        need = np.full((len(counts) * most, counts.shape[1]), ever)
        rows = list(need)
        # Lower bound: none for the copies that exist, `never` for others.
        floor = [list(np.where(counts > k, zero, ever)) for k in range(most)]
        for u in np.flatnonzero(highest)[::-1].tolist():
            readers, asked = self.readers[u], self.asked[u]
            row = rows[u * most]
            if asked:
                row[:] = asked[0]
            for w in readers:
                np.minimum(row, rows[w * most], out=row)
            np.maximum(row, floor[0][u], out=row)
            for k in range(1, highest[u]):
                before, row = row, rows[u * most + k]
                for j in asked[: k + 1]:
                    np.minimum(row, np.where(before < j, self.kind(j), ever), out=row)
                for w in readers:
                    for i in range(min(k + 1, highest[w])):
                        other = rows[w * most + i]
                        np.minimum(row, np.where(before < other, other, ever), out=row)
                np.maximum(row, floor[k][u], out=row)
            if u in self.limit and (highest[u] > 1 or u not in self.early):
                self._spare(counts, need[u * most : (u + 1) * most], u, unknown)
        return need, unknown

    def _spare(self, counts: Array, need: Array, u: int, unknown: Array) -> None:
        late = ((need > self.limit[u]) & (need < self.never)).any(axis=0)
        counts[u, late] = 0
        need[:, late] = self.never
        if len(need) > 1:
            unknown |= late

    def _bytes(self, counts: Array | None, need: Array, most: int) -> Array:
        """Bytes by stage. Without `counts` the copies are arbitrary runs, and reads find the newest one."""
        n, never, number = self.num_forward, self.never, need.shape[1]
        again = need < never
        # Number of copies before each backward task; the last row is that of `never`.
        bins = need + np.arange(number) * (never + 1)
        run = np.bincount(bins.ravel(), minlength=number * (never + 1)).reshape(number, never + 1)
        run[:, never] = 0
        np.cumsum(run, axis=1, out=run)
        backward = np.empty((never + 1, number), np.int32)
        backward[:never] = run.T[:never]
        backward[:never] += np.arange(n, n + never, dtype=np.int32)[:, None]
        backward[never] = -1
        steps = n + never + int(run[:, -1].max(initial=0)) + len(self.updates)
        copies = self._copies(need, again)
        updates = self._updates(backward, copies, again, steps, most)

        f = self.forward_values
        last = self._last_reads(backward, copies, updates, most)
        if counts is None:
            ends = self._newest_reads(need, backward, copies, most)
        else:
            ends = self._copy_reads(counts, need, last, backward, copies, most)
        # Copy 0 of forward's values, its other copies, and backward's values.
        begins: list[Array] = [np.broadcast_to(self.maker[:f, None], ends[0].shape)]
        mades = [(ends[0] >= 0) | self.always[:f]]
        for k in range(most):
            rows = self.maker[:f] * most + k
            begins.append(np.maximum(copies[rows], 0))
            mades.append(((ends[k + 1] >= 0) | self.always[:f]) & again[rows])
        begins.append(backward[self.maker[f:]])
        mades.append((last[f:] >= 0) | self.always[f:])
        ends.append(last[f:])
        begin = np.concatenate(begins).astype(np.int32)
        end, made = np.concatenate(ends), np.concatenate(mades)  # `ends` stays as it is
        np.maximum(end, begin, out=end)
        end += 1
        joined = self._joined(made, ends, need, copies, backward, most)
        size = np.concatenate((*[self.size[:f]] * most, self.size))
        if not self.sharing:
            total: Array = (size[:, None] * (made & ~joined)).sum(axis=0) + self.all_scratch
            at, nbytes = self.forward_scratch
            for k in range(most):
                total += (again[at * most + k] * nbytes).sum(axis=0)
            return total[:, None]
        begin += joined
        np.copyto(end, begin, where=~made)
        return self._live(size, begin, end, steps, copies, again, backward, updates, most)

    def _copies(self, need: Array, again: Array) -> Array:
        """Positions of copies; -2 for copies that do not run."""
        order = np.argsort(np.ascontiguousarray(need.T), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(need))[None], axis=1)
        copies = rank.T + need
        copies += self.num_forward
        copies[~again] = -2
        positions: Array = copies.astype(np.int32)
        return positions

    def _updates(self, backward: Array, copies: Array, again: Array, steps: int, most: int) -> Array:
        """Positions of the updates; shifts those of all other steps to make room for the updates."""
        number, count = len(self.updates), backward.shape[1]
        if not number:
            return np.empty((0, count), np.int32)
        at = np.maximum(backward[self.update_after], self.num_forward - 1)
        for rows, readers in self.update_behind:
            for k in range(most):
                at[rows] = np.maximum(at[rows], copies[readers * most + k])
        # Updates before each step: those after earlier steps, and those after the same one with a smaller
        # number.
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

    def _last_reads(self, backward: Array, copies: Array, updates: Array, most: int) -> Array:
        """Position of the last read of each value by backward or a recomputation, whichever copy is read."""
        last = backward[self.last_backward]
        for rows, readers in self.read_again:
            for k in range(most):
                last[rows] = np.maximum(last[rows], copies[readers * most + k])
        for rows, readers in self.read_by_update:
            last[rows] = np.maximum(last[rows], updates[readers])
        return last

    def _copy_reads(
        self, counts: Array, need: Array, last: Array, backward: Array, copies: Array, most: int
    ) -> list[Array]:
        """For copy 0, 1, ... of the values that forward writes the position of the last read; -1 if there
        is none.

        For a recomputed task copy 0 is read by forward alone, its last copy by all from there on, and
        the copies in between only by what runs for the same backward task.
        """
        f = self.forward_values
        count = counts[self.maker[:f]]
        first = np.where(count == 0, last[:f], -1)
        np.maximum(first, self.last_forward, out=first)
        ends = [first]
        for k in range(most):
            rows = self.maker[:f] * most + k
            end = np.where(last[:f] > copies[rows], last[:f], np.int32(-1))
            if k < most - 1:
                moment = need[rows]
                brief = np.full_like(end, -1)
                for v, j in self.read_back:
                    here = np.where(moment[v] == j[:, None], backward[j], np.int32(-1))
                    brief[v] = np.maximum(brief[v], here)
                for v, readers in self.read_again:
                    for i in range(most):
                        reader = readers * most + i
                        here = np.where(moment[v] == need[reader], copies[reader], np.int32(-1))
                        brief[v] = np.maximum(brief[v], here)
                end = np.where(count > k + 1, brief, end)
            ends.append(end)
        return ends

    def _newest_reads(self, need: Array, backward: Array, copies: Array, most: int) -> list[Array]:
        """As `_copy_reads` for any runs: a copy is read from its backward task on until the next copy's."""
        f = self.forward_values
        maker = self.maker[:f] * most
        moments = [np.zeros((f, need.shape[1]), need.dtype), *(need[maker + k] for k in range(most))]
        moments.append(np.full_like(moments[0], self.never))
        ends = [np.broadcast_to(self.last_forward, moments[0].shape).copy()]
        ends += [np.full_like(ends[0], -1) for _ in range(most)]
        reads = [(rows, j[:, None], backward[j]) for rows, j in self.read_back]
        for rows, readers in self.read_again:
            reads += [(rows, need[readers * most + i], copies[readers * most + i]) for i in range(most)]
        for rows, moment, position in reads:
            for k in range(most + 1):
                here = (moments[k][rows] <= moment) & (moment < moments[k + 1][rows])
                ends[k][rows] = np.maximum(ends[k][rows], np.where(here, position, -1))
        return ends

    def _joined(
        self, made: Array, ends: list[Array], need: Array, copies: Array, backward: Array, most: int
    ) -> Array:
        """True for the copies in `made` that overwrite an input which is dead after that step."""
        f = self.forward_values
        joined = np.zeros_like(made)
        used = np.zeros((most + 2, self.slots, made.shape[1]), bool)

        def last_read(donor: Array, moment: Array) -> Array:
            """Last read of the copies of `donor` that are the newest at the backward tasks `moment`."""
            inside = donor < f
            if not inside.any():
                late: Array = ends[-1][donor - f]
                return late
            place = np.where(inside, donor, 0)
            maker = self.maker[place] * most
            end = ends[0][place]
            for k in range(most):
                end = np.where(need[maker + k] <= moment, ends[k + 1][place], end)
            if not inside.all():
                end[~inside] = ends[-1][donor[~inside] - f]
            return end

        for j in self.forward_joins:
            j.join(joined, used[0], 0, made[j.out] & (ends[0][j.donor] == j.step[:, None]))
            for k in range(most):
                row = j.step * most + k
                here = made[(k + 1) * f + j.out] & (last_read(j.donor, need[row]) == copies[row])
                j.join(joined, used[k + 1], (k + 1) * f, here)
        # Rows of backward's values follow all copies of forward's.
        for j in self.backward_joins:
            here = last_read(j.donor, j.step[:, None]) == backward[j.step]
            j.join(joined, used[-1], most * f, here & made[most * f + j.out])
        return joined

    def _live(
        self,
        size: Array,
        begin: Array,
        end: Array,
        steps: int,
        copies: Array,
        again: Array,
        backward: Array,
        updates: Array,
        most: int,
    ) -> Array:
        count = begin.shape[1]
        width = steps + 1
        start = np.arange(count) * width
        weight = np.broadcast_to(size[:, None].astype(np.float64), begin.shape).ravel()
        live = np.bincount((begin + start).ravel(), weight, count * width)
        live -= np.bincount((end + start).ravel(), weight, count * width)
        live = live.reshape(count, width)
        # Floats, but sums of whole numbers below 2**53: exact.
        np.cumsum(live, axis=1, out=live)
        flat = live.reshape(-1)
        at, nbytes = self.forward_scratch
        live[:, at] += nbytes.T
        for k in range(most):
            # A step that does not exist is put after all others, where nothing is live.
            rows = at * most + k
            places = np.where(again[rows], copies[rows], steps)
            flat[places + start] += np.where(again[rows], nbytes, 0)
        for (at, nbytes), position in ((self.backward_scratch, backward), (self.update_scratch, updates)):
            flat[position[at] + start] += nbytes
        first = np.concatenate((np.arange(self.num_forward + 1)[:, None] + 0 * start, backward[:-2] + 1))
        peaks: Array = np.maximum.reduceat(flat, (first + start).T.ravel()).reshape(count, -1)
        return peaks.astype(np.int64)
