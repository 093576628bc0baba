"""Live bytes of one candidate after another, by a walk through its steps in machine code.

`Profiles` computes the same figures for many candidates at once, in numpy; with llvmlite, these
loops take a small part of that time. They know nothing of schedules as objects: tasks, values and steps are
numbers in arrays, whose rows are concatenated ("of task t: from first[t] to first[t + 1]").

Three walks compute a candidate's figures. `runs_of_counts` finds before which backward tasks each forward
task is recomputed (the stages of `Runs`), from the last forward task to the first. `line_up` writes down the
steps in order, with updates where they belong. `live_bytes` walks along them twice: the first time to find
where each instance is read last, the second time to add up what is live.

Functions here are written in the subset of Python that `compiled` accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ..compiled import compiled, Fixed, Ints
from ..problem import padded, Problem
from ..tables import ints, rows

if TYPE_CHECKING:
    from .profiles import Profiles

Array = np.ndarray


def runs_of_counts(
    counts: Ints, at: int, number: int, stages: int, asked_first: Ints, asked: Ints, reader_first: Ints,
    reader: Ints, limit: Ints, first: Ints, num: Ints, stage: Ints,
) -> int:  # fmt: skip
    """Fill `stage`: for forward task u, from first[u] on, the `num[u]` stages before which it is recomputed.

    The count of task u is counts[at + u]. A task runs for the first `count` of the backward tasks that
    request it, or a result computed from it. One that would run after `limit` runs once; returns 1 if there
    is one.
    """
    late = 0
    total = 0
    u = 0
    while u < number:
        first[u] = total
        num[u] = 0
        total += counts[at + u]
        u += 1
    while u > 0:
        u -= 1
        count = counts[at + u]
        before = -1
        a = asked_first[u]
        while num[u] < count:
            best = stages
            while a < asked_first[u + 1] and asked[a] <= before:
                a += 1
            if a < asked_first[u + 1]:
                best = asked[a]
            r = reader_first[u]
            while r < reader_first[u + 1]:
                k = first[reader[r]]
                end = k + num[reader[r]]
                while k < end and stage[k] <= before:
                    k += 1
                if k < end and stage[k] < best:
                    best = stage[k]
                r += 1
            if best == stages:
                break
            if best > limit[u]:
                late = 1
                num[u] = 0
                break
            stage[first[u] + num[u]] = best
            num[u] += 1
            before = best
    return late


def line_up(
    number: int, stages: int, updates: int, first: Ints, f: int, num: Ints, m: int, stage: Ints,
    backward: Ints, update: Ints, after: Ints, behind_first: Ints, behind: Ints, begin: Ints, position: Ints,
    next_update: Ints, line: Ints, steps: Ints, stage_of: Ints,
) -> int:  # fmt: skip
    """Fill `steps` with tasks in the order of steps and `stage_of` with their stages; return their number.

    Stages of forward task u are `stage` from first[f + u] on, num[m + u] of them. `position` is that of
    the last run of each forward task and of each backward one, updates not counted; `line` holds those steps.
    """
    j = 0
    while j <= stages:
        begin[j] = 0
        j += 1
    u = 0
    while u < number:
        line[u] = u
        position[u] = u
        k = first[f + u]
        end = k + num[m + u]
        while k < end:
            begin[stage[k] + 1] += 1
            k += 1
        u += 1
    # The runs of each stage begin after those of earlier stages and their backward tasks.
    begin[0] = number
    j = 0
    while j < stages:
        begin[j + 1] += begin[j] + 1
        place = begin[j + 1] - 1
        line[place] = backward[j]
        position[number + j] = place
        j += 1
    length = begin[stages]
    u = 0
    while u < number:
        k = first[f + u]
        end = k + num[m + u]
        while k < end:
            place = begin[stage[k]]
            line[place] = u
            begin[stage[k]] = place + 1
            position[u] = place
            k += 1
        u += 1
    # Updates after each step, as linked lists: the first at `place`, then the next of each.
    head = updates
    place = 0
    while place < length and updates > 0:
        next_update[head + place] = -1
        place += 1
    i = updates
    while i > 0:
        i -= 1
        place = number - 1
        if after[i] >= 0 and position[number + after[i]] > place:
            place = position[number + after[i]]
        b = behind_first[i]
        while b < behind_first[i + 1]:
            if position[behind[b]] > place:
                place = position[behind[b]]
            b += 1
        next_update[i] = next_update[head + place]
        next_update[head + place] = i
    s = 0
    j = 0  # stages of backward begun
    place = 0
    while place < length:
        steps[s] = line[place]
        if place < number:
            stage_of[s] = place
        else:
            stage_of[s] = number + j
        s += 1
        if place >= number and place == position[number + j] and j + 1 < stages:
            j += 1
        if updates > 0:
            i = next_update[head + place]
            while i >= 0:
                steps[s] = update[i]
                stage_of[s] = number + j
                s += 1
                i = next_update[i]
        place += 1
    return s


def live_bytes(
    count: int, steps: Ints, stage_of: Ints, in_first: Ints, ins: Ints, out_first: Ints, outs: Ints,
    always: Ints, join_first: Ints, join_out: Ints, join_in: Ints, size: Ints, scratch: Ints, newest: Ints,
    last: Ints, joined: Ints, live: Ints, at: int,
) -> int:  # fmt: skip
    """Add to live[at + stage] the live bytes at the stage's fullest step; returns 0.

    `newest` is the instance of each value, `last` the step that reads an instance last, `joined` 1 if an
    output overwrites an input.
    """
    instances = 0
    s = 0
    while s < count:
        t = steps[s]
        i = in_first[t]
        while i < in_first[t + 1]:
            last[newest[ins[i]]] = s
            i += 1
        o = out_first[t]
        while o < out_first[t + 1]:
            newest[outs[o]] = instances
            last[instances] = -1
            instances += 1
            o += 1
        s += 1
    instances = 0
    total = 0
    s = 0
    while s < count:
        t = steps[s]
        base = instances - out_first[t]
        o = out_first[t]
        while o < out_first[t + 1]:
            joined[o] = 0
            o += 1
        i = join_first[t]
        while i < join_first[t + 1]:
            o = join_out[i]
            donor = newest[join_in[i]]
            if joined[o] == 0 and last[donor] == s and (last[base + o] >= 0 or always[o] == 1):
                joined[o] = 1
                last[donor] = -2  # dead, and its bytes are the output's
            i += 1
        o = out_first[t]
        while o < out_first[t + 1]:
            if joined[o] == 0 and (last[base + o] >= 0 or always[o] == 1):
                total += size[outs[o]]
            o += 1
        if total + scratch[t] > live[at + stage_of[s]]:
            live[at + stage_of[s]] = total + scratch[t]
        i = in_first[t]
        while i < in_first[t + 1]:
            if last[newest[ins[i]]] == s:
                total -= size[ins[i]]
            i += 1
        o = out_first[t]
        while o < out_first[t + 1]:
            newest[outs[o]] = base + o
            if last[base + o] == -1 and always[o] == 1:
                total -= size[outs[o]]
            o += 1
        instances = base + out_first[t + 1]
        s += 1
    return 0


def costs(
    candidates: int, given: int, counts: Ints, row_first: Ints, row_num: Ints, row_stage: Ints, number: int,
    stages: int, updates: int, asked_first: Ints, asked: Ints, reader_first: Ints, reader: Ints, limit: Ints,
    backward: Ints, update: Ints, after: Ints, behind_first: Ints, behind: Ints, in_first: Ints, ins: Ints,
    out_first: Ints, outs: Ints, always: Ints, join_first: Ints, join_out: Ints, join_in: Ints, size: Ints,
    scratch: Ints, first: Ints, stage: Ints, begin: Ints, position: Ints, next_update: Ints, line: Ints,
    steps: Ints, stage_of: Ints, newest: Ints, last: Ints, joined: Ints, live: Ints, late: Ints,
) -> int:  # fmt: skip
    """Fill the rows of `live` (candidates, forward tasks + stages), of `late`, and with counts of `row_num`.

    `given` says that each candidate's runs are in `row_first`, `row_num` and `row_stage`; otherwise they are
    derived from `counts`.
    """
    c = 0
    while c < candidates:
        at = c * number
        if given == 1:
            length = line_up(
                number, stages, updates, row_first, at, row_num, at, row_stage, backward, update, after,
                behind_first, behind, begin, position, next_update, line, steps, stage_of,
            )  # fmt: skip
        else:
            late[c] = runs_of_counts(
                counts, at, number, stages, asked_first, asked, reader_first, reader, limit, first, begin,
                stage,
            )  # fmt: skip
            u = 0
            while u < number:
                row_num[at + u] = begin[u]
                u += 1
            length = line_up(
                number, stages, updates, first, 0, row_num, at, stage, backward, update, after, behind_first,
                behind, begin, position, next_update, line, steps, stage_of,
            )  # fmt: skip
        live_bytes(
            length, steps, stage_of, in_first, ins, out_first, outs, always, join_first, join_out, join_in,
            size, scratch, newest, last, joined, live, c * (number + stages),
        )  # fmt: skip
        c += 1
    return 0


PARTS: tuple[Callable[..., int], ...] = (runs_of_counts, line_up, live_bytes, costs)


@cache
def machine_code() -> Callable[..., int] | None:
    """`costs` as machine code, compiled once; None without llvmlite."""
    return compiled(PARTS)


class Stepwise:
    """The tables of one problem, which `profiles` describes and which has a backward pass."""

    def __init__(self, problem: Problem, profiles: Profiles, call: Callable[..., int]) -> None:
        self.call = call
        self.number, self.stages = profiles.num_forward, profiles.never
        tasks, values, made = problem.tasks, problem.values, problem.arena_producer
        n = self.number
        behind: list[list[int]] = [[] for _ in profiles.updates]
        for updates, readers in profiles.update_behind:
            for i, p in zip(updates.tolist(), readers.tolist()):
                behind[i].append(p)
        arena = [v >= 0 for v in made]
        ins = [[v for v in dict.fromkeys(t.inputs) if arena[v]] for t in tasks]
        outs = [[v for v in t.outputs if v >= 0 and arena[v]] for t in tasks]
        joins = problem.joins
        out_first, out_row = rows(outs)
        limit = np.full(n, self.stages, np.int64)
        for t, j in profiles.limit.items():
            limit[t] = j
        after = profiles.update_after
        tables = (
            *rows(profiles.asked),
            *rows(profiles.readers),
            limit,
            ints(profiles.backward),
            ints(profiles.updates),
            np.where(after == profiles.never, -1, after),
            *rows(behind),
            *rows(ins),
            out_first,
            out_row,
            ints(v in t.always for t, row in zip(tasks, outs) for v in row),
            *rows(
                [
                    [int(out_first[t]) + outs[t].index(tasks[t].outputs[o]) for o, _ in pairs]
                    for t, pairs in enumerate(joins)
                ]
            ),
            ints(tasks[t].inputs[d] for t, pairs in enumerate(joins) for _, d in pairs),
            ints(padded(v.nbytes) for v in values),
            ints(padded(t.workspace) for t in tasks),
        )
        self.updates = len(profiles.updates)
        self.tables = tuple(map(Fixed, tables))
        self.widest = max(map(len, outs), default=0)
        self.values, self.joins = len(values), len(tables[13])
        self._runs = -1  # recomputations of one candidate for which there is room
        self._scratch: tuple[Fixed, ...] = ()

    def of_counts(self, counts: Array) -> tuple[Array, Array, Array]:
        """Costs of mirror counts (candidates, forward tasks), 0 or more: (bytes by stage, recomputations of
        each forward task, True where one would run too late and was kept)."""
        counts = np.ascontiguousarray(counts, np.int64)
        most = int(counts.sum(axis=1).max(initial=0))
        num = np.zeros(counts.shape, np.int64)
        live, late = self._costs(len(counts), 0, counts.reshape(-1), _NONE, num, _NONE, most)
        return live, num, late.astype(bool)

    def of_runs(self, num: Array, stage: Array) -> Array:
        """Bytes by stage of candidates whose forward tasks are recomputed `num` (candidates, forward tasks)
        times, before the backward tasks that `stage` lists, concatenated."""
        num = np.ascontiguousarray(num, np.int64)
        first = np.concatenate(([0], np.cumsum(num.ravel())))
        most = int(num.sum(axis=1).max(initial=0))
        return self._costs(len(num), 1, _NONE, first, num, np.ascontiguousarray(stage, np.int64), most)[0]

    def _costs(
        self,
        candidates: int,
        given: int,
        counts: Array | Fixed,
        first: Array | Fixed,
        num: Array,
        stage: Array | Fixed,
        most: int,
    ) -> tuple[Array, Array]:
        n, stages = self.number, self.stages
        live = np.zeros(candidates * (n + stages), np.int64)
        late = np.zeros(candidates, np.int64)
        self.call(
            candidates, given, counts, first, num.reshape(-1), stage, n, stages, self.updates, *self.tables,
            *self._room(most), live, late,
        )  # fmt: skip
        return live.reshape(candidates, n + stages), late

    def _room(self, runs: int) -> tuple[Fixed, ...]:
        """Work arrays for the walks through a candidate with so many recomputations."""
        if runs > self._runs:
            self._runs = 2 * runs
            n, stages = self.number, self.stages
            length = n + stages + self._runs + self.updates
            sizes = (
                n, self._runs + 1, max(n, stages) + 1, n + stages, length + self.updates, length, length,
                length, self.values, length * self.widest + 1, self.joins + 1,
            )  # fmt: skip
            self._scratch = tuple(Fixed(np.zeros(size, np.int64)) for size in sizes)
        return self._scratch


_NONE = Fixed(np.zeros(1, np.int64))
