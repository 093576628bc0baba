"""Live bytes of one candidate after another, by a walk through its steps.

Everything that `make_schedule` and `live_buffers` decide for mirror counts of 0 and more, or for runs, is
computed without writing a schedule down. The loops know nothing of schedules as objects: tasks, values and
steps are numbers in arrays, whose rows are concatenated ("of task t: from first[t] to first[t + 1]").

Three walks compute a candidate's figures. `runs_of_counts` finds before which backward tasks each forward
task is recomputed (the stages of `Runs`), from the last forward task to the first. `line_up` writes down the
steps in order, with updates where they belong. `live_bytes` walks along them twice: the first time to find
where each instance is read last, the second time to add up what is live.

Functions here are written in the subset of Python that `compiled` accepts, and without llvmlite run as that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TYPE_CHECKING

import numpy as np

from ..compiled import compiled, Fixed, interpreted, Ints, ints, rows
from ..problem import padded, Problem

if TYPE_CHECKING:
    from .profiles import Profiles

Array = np.ndarray


class Numbers(NamedTuple):
    """Numbers of forward tasks, of stages of backward, and of updates."""

    number: int
    stages: int
    updates: int


class Candidates(NamedTuple):
    """Candidates: `given` 1 if their runs are in the rows, 0 if these follow from `counts`."""

    candidates: int
    given: int
    counts: Ints
    row_first: Ints
    row_num: Ints
    row_stage: Ints


class Again(NamedTuple):
    """Recomputations of one candidate: of forward task u the stages `stage` from first[f + u] on, num[m + u]
    of them.
    """

    first: Ints
    f: int
    num: Ints
    m: int
    stage: Ints


class Asked(NamedTuple):
    """Who requests the results of forward tasks: backward tasks, and readers; and their last stages."""

    asked_first: Ints
    asked: Ints
    reader_first: Ints
    reader: Ints
    limit: Ints


class Order(NamedTuple):
    """Backward tasks and updates; an update comes after a backward task, and behind readers."""

    backward: Ints
    update: Ints
    after: Ints
    behind_first: Ints
    behind: Ints


class Values(NamedTuple):
    """Values that tasks read and make, those that may share bytes, bytes of values, scratch of tasks."""

    in_first: Ints
    ins: Ints
    out_first: Ints
    outs: Ints
    always: Ints
    join_first: Ints
    join_out: Ints
    join_in: Ints
    size: Ints
    scratch: Ints


class Line(NamedTuple):
    """Work arrays of `line_up`, and the steps that it writes down."""

    begin: Ints
    position: Ints
    next_update: Ints
    line: Ints
    steps: Ints
    stage_of: Ints


class Instances(NamedTuple):
    """The instance of each value, the step that reads an instance last, 1 for an output in place."""

    newest: Ints
    last: Ints
    joined: Ints


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


def line_up(n: Numbers, again: Again, order: Order, line: Line) -> int:
    """Fill `steps` with tasks in the order of steps and `stage_of` with their stages; return their number.

    `position` is that of the last run of each forward task and of each backward one, updates not counted;
    `line` holds those steps.
    """
    j = 0
    while j <= n.stages:
        line.begin[j] = 0
        j += 1
    u = 0
    while u < n.number:
        line.line[u] = u
        line.position[u] = u
        k = again.first[again.f + u]
        end = k + again.num[again.m + u]
        while k < end:
            line.begin[again.stage[k] + 1] += 1
            k += 1
        u += 1
    # The runs of each stage begin after those of earlier stages and their backward tasks.
    line.begin[0] = n.number
    j = 0
    while j < n.stages:
        line.begin[j + 1] += line.begin[j] + 1
        place = line.begin[j + 1] - 1
        line.line[place] = order.backward[j]
        line.position[n.number + j] = place
        j += 1
    length = line.begin[n.stages]
    u = 0
    while u < n.number:
        k = again.first[again.f + u]
        end = k + again.num[again.m + u]
        while k < end:
            place = line.begin[again.stage[k]]
            line.line[place] = u
            line.begin[again.stage[k]] = place + 1
            line.position[u] = place
            k += 1
        u += 1
    # Updates after each step, as linked lists: the first at `place`, then the next of each.
    head = n.updates
    place = 0
    while place < length and n.updates > 0:
        line.next_update[head + place] = -1
        place += 1
    i = n.updates
    while i > 0:
        i -= 1
        place = n.number - 1
        if order.after[i] >= 0 and line.position[n.number + order.after[i]] > place:
            place = line.position[n.number + order.after[i]]
        b = order.behind_first[i]
        while b < order.behind_first[i + 1]:
            if line.position[order.behind[b]] > place:
                place = line.position[order.behind[b]]
            b += 1
        line.next_update[i] = line.next_update[head + place]
        line.next_update[head + place] = i
    s = 0
    j = 0  # stages of backward begun
    place = 0
    while place < length:
        line.steps[s] = line.line[place]
        if place < n.number:
            line.stage_of[s] = place
        else:
            line.stage_of[s] = n.number + j
        s += 1
        if place >= n.number and place == line.position[n.number + j] and j + 1 < n.stages:
            j += 1
        if n.updates > 0:
            i = line.next_update[head + place]
            while i >= 0:
                line.steps[s] = order.update[i]
                line.stage_of[s] = n.number + j
                s += 1
                i = line.next_update[i]
        place += 1
    return s


def live_bytes(
    count: int, steps: Ints, stage_of: Ints, v: Values, now: Instances, live: Ints, at: int
) -> int:
    """Add to live[at + stage] the live bytes at the stage's fullest step; returns 0."""
    instances = 0
    s = 0
    while s < count:
        t = steps[s]
        i = v.in_first[t]
        while i < v.in_first[t + 1]:
            now.last[now.newest[v.ins[i]]] = s
            i += 1
        o = v.out_first[t]
        while o < v.out_first[t + 1]:
            now.newest[v.outs[o]] = instances
            now.last[instances] = -1
            instances += 1
            o += 1
        s += 1
    instances = 0
    total = 0
    s = 0
    while s < count:
        t = steps[s]
        base = instances - v.out_first[t]
        o = v.out_first[t]
        while o < v.out_first[t + 1]:
            now.joined[o] = 0
            o += 1
        i = v.join_first[t]
        while i < v.join_first[t + 1]:
            o = v.join_out[i]
            donor = now.newest[v.join_in[i]]
            if now.joined[o] == 0 and now.last[donor] == s and (now.last[base + o] >= 0 or v.always[o] == 1):
                now.joined[o] = 1
                now.last[donor] = -2  # dead, and its bytes are the output's
            i += 1
        o = v.out_first[t]
        while o < v.out_first[t + 1]:
            if now.joined[o] == 0 and (now.last[base + o] >= 0 or v.always[o] == 1):
                total += v.size[v.outs[o]]
            o += 1
        if total + v.scratch[t] > live[at + stage_of[s]]:
            live[at + stage_of[s]] = total + v.scratch[t]
        i = v.in_first[t]
        while i < v.in_first[t + 1]:
            if now.last[now.newest[v.ins[i]]] == s:
                total -= v.size[v.ins[i]]
            i += 1
        o = v.out_first[t]
        while o < v.out_first[t + 1]:
            now.newest[v.outs[o]] = base + o
            if now.last[base + o] == -1 and v.always[o] == 1:
                total -= v.size[v.outs[o]]
            o += 1
        instances = base + v.out_first[t + 1]
        s += 1
    return 0


def costs(
    c: Candidates, n: Numbers, asked: Asked, order: Order, v: Values, first: Ints, stage: Ints, line: Line,
    now: Instances, live: Ints, late: Ints,
) -> int:  # fmt: skip
    """Fill the rows of `live` (candidates, forward tasks + stages), of `late`, and with counts those of
    `row_num`.
    """
    i = 0
    while i < c.candidates:
        at = i * n.number
        if c.given == 1:
            length = line_up(n, Again(c.row_first, at, c.row_num, at, c.row_stage), order, line)
        else:
            late[i] = runs_of_counts(
                c.counts, at, n.number, n.stages, asked.asked_first, asked.asked, asked.reader_first,
                asked.reader, asked.limit, first, line.begin, stage,
            )  # fmt: skip
            u = 0
            while u < n.number:
                c.row_num[at + u] = line.begin[u]
                u += 1
            length = line_up(n, Again(first, 0, c.row_num, at, stage), order, line)
        live_bytes(length, line.steps, line.stage_of, v, now, live, i * (n.number + n.stages))
        i += 1
    return 0


PARTS: tuple[Callable[..., int], ...] = (runs_of_counts, line_up, live_bytes, costs)


@cache
def machine_code() -> Callable[..., int]:
    """`costs` as machine code, compiled once; as plain Python without llvmlite."""
    return compiled(PARTS) or interpreted(costs)


class Stepwise:
    """The tables of one problem, which `profiles` describes and which has a backward pass."""

    def __init__(self, problem: Problem, profiles: Profiles, call: Callable[..., int]) -> None:
        self.call = call
        self.number, self.stages = profiles.num_forward, profiles.never
        tasks, values, made = problem.tasks, problem.values, problem.arena_producer
        n = self.number
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
            *rows(profiles.update_behind),
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
        for table in tables:
            table.flags.writeable = False
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
