"""Sections: tasks that may be reordered, their dependencies, and the live bytes of an order.

A step has two such sections, the forward pass and what follows it; a search cuts smaller ones out of them.
Within a section a task waits for those that write its inputs, and two tasks that touch the same fixed
storage, where at least one of them writes, keep their order. Updates are not ordered here: each runs as soon
as its gradients are there and the last reader of what it changes is done, as `make_schedule` will have it.

Memory is measured in two ways, side by side:

* *kept*: nothing is recomputed. What is read after the pass stays to its end, and what was written before it
is
  there from the start. This is the plan without a budget, to the byte;
* *own*: values that cross the bounds of the pass are not counted. That is the working memory of a segment
that
  is recomputed, so it matters below every budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...core.cached import cached_property
from ..problem import padded, Problem

Rows = list[tuple[int, ...]]
Table = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Section:
    """Tasks numbered from 0 and arena values numbered apart.

    `read[t]` and `made[t]` are values, `joins[t]` the (output, input) pairs that may share bytes, best first.
    `waits_for[t]` are the tasks that must come before t. Value v has `size[v]` padded bytes; it dies with its
    last reader in here unless `stays_kept[v]`, `stays_own[v]` say for a measure that a later task reads it,
    or that it is not counted. `is_update[t]`: not ordered here, but run as soon as possible. `kept` and `own`
    bytes are live at the start.
    """

    read: Rows
    made: Rows
    joins: list[tuple[tuple[int, int], ...]]
    waits_for: Rows
    is_update: list[bool]
    workspace: list[int]
    size: list[int]
    stays_kept: list[bool]
    stays_own: list[bool]
    kept: int
    own: int

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The tasks that can be ordered, as given."""
        return tuple(t for t, update in enumerate(self.is_update) if not update)

    @cached_property
    def is_chain(self) -> bool:
        """True if each task waits for the one before it, so that the given order is the only one."""
        return all(before in self.waits_for[t] for before, t in pairwise(self.order))

    @cached_property
    def readers(self) -> list[list[int]]:
        """For each value the tasks that read it."""
        rows: list[list[int]] = [[] for _ in self.size]
        for t, row in enumerate(self.read):
            for v in row:
                rows[v].append(t)
        return rows

    @cached_property
    def followers(self) -> list[list[int]]:
        """For each task those that wait for it, by number."""
        rows: list[list[int]] = [[] for _ in self.read]
        for t, row in enumerate(self.waits_for):
            for p in row:
                rows[p].append(t)
        return rows

    def profile(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """Live bytes, kept and own, at each step of `order`; an update counts with the step it follows.

        O(inputs).
        """
        memory = Memory(self)
        found = [memory.run(t) for t in order]
        if found:
            found[0] = (max(found[0][0], memory.before[0]), max(found[0][1], memory.before[1]))
        return [k for k, _ in found], [o for _, o in found]


class Memory:
    """Live bytes, `kept` and `own`, after some tasks of a section have run.

    `waiting[t]` tasks have to run before t; `left[v]` tasks still have to read v.
    """

    def __init__(self, section: Section) -> None:
        self.section = section
        self.kept, self.own = section.kept, section.own
        self.waiting = [len(row) for row in section.waits_for]
        self.left = [len(row) for row in section.readers]
        self.before = (self.kept, self.own)
        for t, update in enumerate(section.is_update):
            if update and self.waiting[t] == 0:  # it runs as soon as the section is entered
                k, o = self._step(t)
                self.before = (max(self.before[0], k), max(self.before[1], o))

    def run(self, t: int) -> tuple[int, int]:
        """Run task t and the updates that it enables; return the peak bytes meanwhile."""
        kept, own = self._step(t)
        section, waiting = self.section, self.waiting
        for f in section.followers[t]:
            waiting[f] -= 1
            if waiting[f] == 0 and section.is_update[f]:
                k, o = self._step(f)
                kept, own = max(kept, k), max(own, o)
        return kept, own

    def _step(self, t: int) -> tuple[int, int]:
        section, left = self.section, self.left
        size, stays_kept, stays_own = section.size, section.stays_kept, section.stays_own
        kept, own = self.kept, self.own
        for v in section.made[t]:
            kept += size[v]
            own += size[v]
        most_kept, most_own = kept + section.workspace[t], own + section.workspace[t]
        if section.joins[t]:
            dying = [v for v in section.read[t] if left[v] == 1]
            most_kept -= joined_bytes(section, t, dying, stays_kept)
            most_own -= joined_bytes(section, t, dying, stays_own)
        for v in section.read[t]:
            left[v] -= 1
            if left[v] == 0:
                if not stays_kept[v]:
                    kept -= size[v]
                if not stays_own[v]:
                    own -= size[v]
        for v in section.made[t]:
            if left[v] == 0:  # no task here reads it
                if not stays_kept[v]:
                    kept -= size[v]
                if not stays_own[v]:
                    own -= size[v]
        self.kept, self.own = kept, own
        return most_kept, most_own


def joined_bytes(section: Section, t: int, dying: Sequence[int], stays: Sequence[bool]) -> int:
    """Bytes of `dying` inputs that outputs of t reuse in place."""
    outs: list[int] = []
    donors: list[int] = []
    for out, donor in section.joins[t]:
        if donor in dying and not stays[donor] and out not in outs and donor not in donors:
            outs.append(out)
            donors.append(donor)
    return sum(section.size[v] for v in outs)


def section_of(problem: Problem, first: int, stop: int) -> Section:
    """Section of tasks [first, stop) of a problem, a pass or a contiguous part of one. O(inputs)."""
    tasks, values, producer = problem.tasks, problem.values, problem.arena_producer
    ever = {v for t in tasks for v in t.inputs}
    later = {v for t in tasks[stop:] for v in t.inputs}
    number: dict[int, int] = {}
    size: list[int] = []
    crosses: list[bool] = []
    outlives: list[bool] = []
    read: Rows = []
    made: Rows = []
    joins = []

    def own(v: int) -> int:
        if v not in number:
            number[v] = len(size)
            size.append(padded(values[v].nbytes))
            crosses.append(producer[v] < first)
            outlives.append(v in later)
        return number[v]

    for t in range(first, stop):
        task = tasks[t]
        new = [v for v in task.outputs if v >= 0 and not values[v].fixed and (v in ever or v in task.always)]
        made.append(tuple(map(own, new)))
        read.append(tuple(own(v) for v in dict.fromkeys(task.inputs) if producer[v] >= 0))
        pairs = ((task.outputs[o], task.inputs[i]) for o, i in problem.joins[t])
        joins.append(tuple((own(o), own(i)) for o, i in pairs if o in new and producer[i] >= 0))
    return Section(
        read,
        made,
        joins,
        _dependencies(problem, first, stop),
        [t.update for t in tasks[first:stop]],
        [padded(t.workspace) for t in tasks[first:stop]],
        size,
        outlives,
        crosses,
        sum(s for s, c in zip(size, crosses) if c),
        0,
    )


def _dependencies(problem: Problem, first: int, stop: int) -> Rows:
    """For each task of a section the tasks of the section that it waits for. O(inputs)."""
    tasks, producer = problem.tasks, problem.producer
    rows: list[dict[int, None]] = [
        {p - first: None for v in tasks[t].inputs if first <= (p := producer[v]) < stop}
        for t in range(first, stop)
    ]
    plain = [t for t in range(first, stop) if not tasks[t].update]
    written = {v for t in plain for v in tasks[t].mutates}
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for t in plain:
        row = rows[t - first]
        for v in written.intersection((*tasks[t].inputs, *tasks[t].outputs, *tasks[t].mutates)):
            if v in writer:
                row[writer[v]] = None
            readers.setdefault(v, []).append(t - first)
        for v in tasks[t].mutates:
            row.update(dict.fromkeys(readers.pop(v, ())))
            writer[v] = t - first
            readers[v] = [t - first]
        row.pop(t - first, None)
    changed = {v for t in tasks[first:stop] if t.update for v in t.mutates}
    users: dict[int, list[int]] = {}
    for t in plain:
        for v in changed.intersection((*tasks[t].inputs, *tasks[t].mutates)):
            users.setdefault(v, []).append(t - first)
    for t in range(first, stop):
        if tasks[t].update:
            for v in tasks[t].mutates:
                rows[t - first].update(dict.fromkeys(users.get(v, ())))
    return [tuple(sorted(row)) for row in rows]


def window_of(memory: Memory, tasks: Sequence[int]) -> Section:
    """Section of the given `tasks`, to be run next; `memory` is the state before them.

    Their order is the given order. Updates that they enable belong to it, numbered after them. O(their
    inputs).
    """
    section, waiting = memory.section, memory.waiting
    place = {t: i for i, t in enumerate(tasks)}
    seen: dict[int, int] = {}
    for t in tasks:
        for f in section.followers[t]:
            if section.is_update[f]:
                seen[f] = seen.get(f, 0) + 1
    for u in sorted(u for u, n in seen.items() if n == waiting[u]):
        place[u] = len(place)
    number: dict[int, int] = {}
    here = list(place)
    readers: dict[int, int] = {}
    for t in here:
        for v in section.read[t]:
            number.setdefault(v, len(number))
            readers[v] = readers.get(v, 0) + 1
        for v in section.made[t]:
            number.setdefault(v, len(number))
    goes_on = [memory.left[v] > readers.get(v, 0) for v in number]
    return Section(
        [tuple(number[v] for v in section.read[t]) for t in here],
        [tuple(number[v] for v in section.made[t]) for t in here],
        [tuple((number[o], number[i]) for o, i in section.joins[t]) for t in here],
        [tuple(place[p] for p in section.waits_for[t] if p in place) for t in here],
        [section.is_update[t] for t in here],
        [section.workspace[t] for t in here],
        [section.size[v] for v in number],
        [g or section.stays_kept[v] for g, v in zip(goes_on, number)],
        [g or section.stays_own[v] for g, v in zip(goes_on, number)],
        memory.kept,
        memory.own,
    )


def pieces(section: Section) -> list[tuple[int, ...]]:
    """The tasks of `section` in consecutive groups, each ending with an articulation point: a task that every
    order passes with the same work done, so that the pass can be cut there.

    A task is one if each other task comes before it, or after it, in every order. Weight gradients (whose
    results nothing here reads) and short trees that begin with parameters or inputs (a lookup, a projection
    of an input) could run almost anywhere; they are left out of account, and then put where they would run
    anyway: the first as soon as they can, the others just before they are needed.

    Within a group tasks come as given. Running group by group respects all dependencies. O(inputs).
    """
    order = section.order
    is_update = section.is_update
    followers = [[f for f in row if not is_update[f]] for row in section.followers]
    waits = section.waits_for
    late = _side_trees(order, waits, followers)
    early = _side_trees(order[::-1], followers, waits)
    height = _heights(order, waits)
    last = max(order, key=lambda t: (height[t], t), default=-1)
    for t in order:
        early[t] = (early[t] or not followers[t]) and t != last
    core = [t for t in order if not late[t] and not early[t]]
    group = _groups(core, waits, followers, set(core))
    for t in order:
        if t not in group and not late[t]:
            group[t] = max((group[p] for p in waits[t] if p in group), default=0)
    for t in reversed(order):
        if late[t]:
            group[t] = min((group[f] for f in followers[t] if f in group), default=0)
    found: list[list[int]] = [[] for _ in range(max(group.values(), default=-1) + 1)]
    for t in order:
        found[group[t]].append(t)
    return [tuple(row) for row in found if row]


def _groups(core: Sequence[int], waits: Table, followers: Table, inside: set[int]) -> dict[int, int]:
    """Number of articulation points before each task of the core."""
    at = {t: i for i, t in enumerate(core)}
    far = len(core)
    first_use = [min((at[f] for f in followers[t] if f in inside), default=far) for t in core]
    last_need = [max((at[p] for p in waits[t] if p in inside), default=-1) for t in core]
    needed_from = [far] * (far + 1)  # the minimum of last_need from here on
    for i in range(far - 1, -1, -1):
        needed_from[i] = min(needed_from[i + 1], last_need[i])
    group: dict[int, int] = {}
    number, unused = 0, 0  # the latest position at which the results so far are first used
    for i, t in enumerate(core):
        group[t] = number
        if unused <= i and needed_from[i + 1] >= i:
            number += 1
        unused = max(unused, first_use[i])
    return group


def _side_trees(order: Sequence[int], waits: Table, followers: Table) -> list[bool]:
    """True for each task of a tree that feeds one task which also has a longer chain of predecessors.

    A tree: each task in it has one follower and waits only for tasks of the tree.
    """
    height = _heights(order, waits)
    count = max(order, default=-1) + 1
    pure = [False] * max(count, len(waits))
    longest: dict[int, int] = {}
    for t in order:
        pure[t] = all(pure[p] and len(followers[p]) == 1 for p in waits[t])
        if waits[t]:
            longest[t] = max(waits[t], key=lambda p: (height[p], -p))
    side = [False] * len(pure)
    for t in reversed(order):
        if pure[t] and len(followers[t]) == 1:
            f = followers[t][0]
            side[t] = side[f] or longest[f] != t
    return side


def _heights(order: Sequence[int], waits: Table) -> dict[int, int]:
    """Length of the longest chain of tasks that ends with each task."""
    height: dict[int, int] = {}
    for t in order:
        height[t] = 1 + max((height.get(p, 0) for p in waits[t]), default=0)
    return height
