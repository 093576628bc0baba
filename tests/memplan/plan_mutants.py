"""Plans broken as a planner could break them, and a machine that plays a plan in an order, byte by byte.

The machine shares nothing with the judge: it keeps what lies in each 64 bytes and runs the steps in one order
that the given predecessors allow. What it refuses the judge must refuse; the judge may refuse more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mxlite.memplan import FETCH, RUN, STORE


class Broken(Exception):
    """A step read or wrote what it should not."""


def order_of(before, rng):
    """An order of all steps that keeps `before`: the oldest, the newest or any of those that may run."""
    waits = [len(set(row)) for row in before]
    after = [[] for _ in before]
    for s, row in enumerate(before):
        for p in set(row):
            after[p].append(s)
    ready, order = [s for s, n in enumerate(waits) if not n], []
    way = rng.choice(("oldest", "newest", "any"))
    while ready:
        ready.sort()
        at = {"oldest": 0, "newest": -1, "any": rng.randrange(len(ready))}[way]
        order.append(ready.pop(at))
        for s in after[order[-1]]:
            waits[s] -= 1
            if not waits[s]:
                ready.append(s)
    return order


def demand(sound, what):
    if not sound:
        raise Broken(what)


class Machine:
    """Plays the steps of a plan. `arena` and `host` say which value lies in each 64 bytes."""

    def __init__(self, plan):
        self.plan, self.problem, self.schedule = plan, plan.problem, plan.schedule
        self.arena, self.host = {}, {}
        self.made = set()  # fixed values that tasks make
        self.version = Counter()  # of fixed values that tasks change
        self.expected = []  # by task
        count = Counter()
        for task in self.problem.tasks:
            self.expected.append({v: count[v] for v in (*task.inputs, *task.mutates)})
            count.update(task.mutates)

    def play(self, order):
        runs = Counter()
        for s in order:
            if self.schedule.kinds[s] == RUN:
                runs[self.schedule.task[s]] += 1
                self.run(s)
            else:
                self.copy(s)
        for t, task in enumerate(self.problem.tasks):
            demand(runs[t] and (runs[t] == 1 or (task.recomputable and not task.mutates)), "number of runs")

    def cells(self, b, nbytes):
        demand(b >= 0, "no buffer")
        low = self.plan.offsets[b]
        demand(0 <= low and low + nbytes <= self.plan.arena_bytes and low % 64 == 0, "place")
        return range(low // 64, -(-(low + nbytes) // 64))

    def bytes_of(self, i):
        nbytes = self.problem.values[self.schedule.value_of[i]].nbytes
        return self.cells(self.plan.liveness.range_of[i], nbytes)

    def host_bytes_of(self, i):
        low, high = self.plan.hosted[i]
        demand(0 <= low and high <= self.plan.host_bytes and low % 64 == 0, "place in host memory")
        return range(low // 64, -(-high // 64))

    def copy(self, s):
        (i,), (o,) = self.schedule.inputs[s], self.schedule.outputs[s]
        v = self.schedule.value_of[i]
        if self.schedule.kinds[s] == STORE:
            demand(all(self.arena.get(c) == v for c in self.bytes_of(i)), "stored")
            self.host.update(dict.fromkeys(self.host_bytes_of(o), v))
        else:
            assert self.schedule.kinds[s] == FETCH
            demand(all(self.host.get(c) == v for c in self.host_bytes_of(i)), "fetched")
            self.arena.update(dict.fromkeys(self.bytes_of(o), v))

    def run(self, s):
        values, t = self.problem.values, self.schedule.task[s]
        task, read, written = self.problem.tasks[t], {}, {}
        for i in self.schedule.inputs[s]:
            v = self.schedule.value_of[i]
            if values[v].fixed and self.problem.producer[v] >= 0:
                demand(v in self.made, "fixed value that nobody made")
            elif values[v].fixed:
                demand(self.version[v] == self.expected[t][v], "another version")
            else:
                demand(all(self.arena.get(c) == v for c in self.bytes_of(i)), "value")
                for c in self.bytes_of(i):
                    read.setdefault(c, []).append(i)
        for o, v in zip(self.schedule.outputs[s], task.outputs):
            if v >= 0 and values[v].fixed:
                demand(o >= 0 or self.schedule.copy[s], "fixed output left out")
                self.made.add(v)
            elif o < 0:
                demand(v not in task.always, "output left out")
            else:
                place = self.bytes_of(o)
                for c in place:
                    demand(c not in written, "two outputs")
                    demand(
                        all(
                            self.may_take(place, i, (v, self.schedule.value_of[i]), task)
                            for i in read.get(c, ())
                        ),
                        "input",
                    )
                    written[c] = v
        if task.workspace:
            for c in self.cells(self.plan.liveness.workspace_of.get(s, -1), task.workspace):
                demand(c not in written and c not in read, "workspace")
                written[c] = -1
        self.arena.update(written)
        for v in task.mutates:
            demand(self.version[v] == self.expected[t][v], "another version changed")
            self.version[v] += 1

    def may_take(self, place, i, pair, task):
        return self.bytes_of(i) == place and pair in task.in_place and task.inputs.count(pair[1]) == 1


# -- mutants ---------------------------------------------------------------------------------------------


def mutants(plan, rng):
    """(name, plan, order) of broken plans; order None is what the plan says of itself."""
    yield from moved(plan, rng)
    yield from swapped_buffers(plan, rng)
    yield from other_steps(plan, rng)
    yield from other_instances(plan, rng)
    before = plan.predecessors
    for s in rng.sample(range(len(before)), min(6, len(before))):
        for p in before[s]:
            less = [tuple(q for q in row if (k, q) != (s, p)) for k, row in enumerate(before)]
            yield "a wait left out", plan, less


def changed(row, at, value):
    return (*row[:at], value, *row[at + 1 :])


def with_schedule(plan, **changes):
    return replace(plan, schedule=replace(plan.schedule, **changes))


def moved(plan, rng):
    """Buffers, workspaces and what waits in host memory by some bytes; an arena that is too small."""
    offsets, scratch = plan.offsets, [*plan.liveness.workspace_of.values()]
    for b in (*rng.sample(range(len(offsets)), min(3, len(offsets))), *scratch[:2]):
        low = rng.choice((offsets[b] - 64, offsets[b] + 64, offsets[b] + 128, offsets[b] + 8, -64, *offsets))
        yield "a buffer moved", replace(plan, offsets=changed(offsets, b, low)), None
    for h, low in enumerate(plan.host_offsets[:2]):
        there = changed(plan.host_offsets, h, low + rng.choice((-64, 8, 64)))
        yield "a place in host memory moved", replace(plan, host_offsets=there), None
    yield "less arena", replace(plan, placed_bytes=plan.placed_bytes - 64), None
    yield "less host memory", replace(plan, host_bytes=plan.host_bytes - 64), None


def swapped_buffers(plan, rng):
    """Another buffer for an instance or a workspace, with and without the buffers' knowing."""
    liveness, count = plan.liveness, len(plan.offsets)
    for s in list(liveness.workspace_of)[:2]:
        without = {k: b for k, b in liveness.workspace_of.items() if k != s}
        for other in (without, {**without, s: rng.randrange(count)}):
            yield "another workspace", replace(plan, liveness=replace(liveness, workspace_of=other)), None
    for i in rng.sample(range(len(liveness.range_of)), min(4, len(liveness.range_of))):
        was, b = liveness.range_of[i], rng.randrange(count)
        if was in (-1, b) or not liveness.ranges[b].members:
            continue
        alone = replace(liveness, range_of=changed(liveness.range_of, i, b))
        yield "an instance looked for elsewhere", replace(plan, liveness=alone), None
        left = tuple(m for m in liveness.ranges[was].members if m != i)
        ranges = changed(liveness.ranges, was, replace(liveness.ranges[was], members=left))
        grown = replace(ranges[b], members=(*ranges[b].members, i))
        known = replace(alone, ranges=changed(ranges, b, grown))
        yield "an instance in another buffer", replace(plan, liveness=known), None


def in_order(plan, order):
    s = plan.schedule
    rows = ("task", "copy", "inputs", "outputs", *(("kind",) if s.kind else ()))
    return with_schedule(plan, **{f: tuple(getattr(s, f)[k] for k in order) for f in rows})


def other_steps(plan, rng):
    """Steps swapped, moved, left out; a run that is left out, and who read it reads the first one."""
    s = plan.schedule
    steps = list(range(len(s.task)))
    for _ in range(3):
        a, b, order = rng.choice(steps), rng.choice(steps), list(steps)
        order[a], order[b] = order[b], order[a]
        yield "two steps swapped", in_order(plan, order), "as listed"
        order = list(steps)
        order.insert(b, order.pop(a))
        yield "a step moved", in_order(plan, order), "as listed"
    yield "a step left out", in_order(plan, [k for k in steps if k != a]), "as listed"
    for again in [k for k in steps if s.copy[k]][:2]:
        first = {o: s.value_of[o] for o in s.outputs[again] if o >= 0}
        less = in_order(plan, [k for k in steps if k != again])
        inputs = tuple(tuple(first.get(i, i) for i in row) for row in less.schedule.inputs)
        yield "a run left out", with_schedule(less, inputs=inputs), "as listed"


def other_instances(plan, rng):
    """Another instance of the same value read; an output that is not written."""
    s = plan.schedule
    for k in rng.sample(range(len(s.task)), min(4, len(s.task))):
        for at, i in enumerate(s.inputs[k]):
            same = [j for j, v in enumerate(s.value_of) if v == s.value_of[i] and j != i]
            if same:
                row = changed(s.inputs[k], at, rng.choice(same))
                yield "another instance read", with_schedule(plan, inputs=changed(s.inputs, k, row)), None
        for at, o in enumerate(s.outputs[k]):
            if o >= 0:
                row = changed(s.outputs[k], at, -1)
                yield "an output left out", with_schedule(plan, outputs=changed(s.outputs, k, row)), None
