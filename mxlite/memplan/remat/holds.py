"""Tasks held from one backward task to the next: schedules in a form that stays sound under small changes.

Backward tasks are *stages*. For each forward task and each stage one bit says if its results are live
when the stage begins. All else follows, stage by stage, from the last forward task to the first: what a
stage's backward task reads, what a task recomputed in this stage reads, and what is held for the next
stage must be live; if it was not held, the task is recomputed.

    stage        0  1  2  3  4  5  6           stage        0  1  2  3  4  5  6
    read         .  r  .  .  .  r  .           read         .  r  .  .  .  r  .
    held         h  h  h  h  h  h  .           held         h  h  .  .  .  .  .
    runs again   .  .  .  .  .  .  .           runs again   .  .  .  .  .  R  .     and so do, at 5, those of
                                                                                    its inputs not held there

So any bits are a schedule: to drop something for a while is to clear bits, to keep it is to set them, and
changes of different tasks add up. Bits between a task's last read and the end of its hold are cleared at
once. The bits of a task are integers, with stage 0 in the highest place of the first: then "held for the next
stage" is a shift, and "held up to a read" is the carry of an addition. The loops over them are in `spans.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..compiled import all_compiled, Fixed, interpreted, ints, rows
from ..problem import Problem
from . import spans
from .profiles import Profiles
from .schedule import Runs

Array = np.ndarray

PLACES = 60  # bits of a number in machine code; sums of two must fit
ROOM = 4096  # changes of one state, initially


@dataclass(frozen=True, slots=True)
class Held:
    """Schedules, one in each row: for each forward task bits of the stages in which it is `held` when they
    begin, and of those in which it `runs` again (is recomputed)."""

    held: Array
    runs: Array

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, some: Array | slice) -> Held:
        return Held(self.held[some], self.runs[some])


@dataclass(frozen=True, slots=True)
class Changes:
    """Single changes of one schedule.

    Change k is of task ways[k, 0] at the event ways[k, 1], of kind ways[k, 2]; its effects are the rows of
    `spans` from first[k] to first[k + 1].
    """

    ways: Array
    first: Array
    spans: Array

    def __len__(self) -> int:
        return len(self.ways)

    @classmethod
    def joined(cls, parts: Sequence[Changes]) -> Changes:
        """Union of several lists of changes for the same schedule, each change once."""
        number = [np.diff(p.first) for p in parts]
        first = np.concatenate([[0], *number]).cumsum()
        both = cls(np.concatenate([p.ways for p in parts]), first, np.concatenate([p.spans for p in parts]))
        once = np.array(
            [*{way: i for i, way in enumerate(map(tuple, both.ways.tolist()))}.values()], np.int64
        )
        some, found = both._spans(once)
        return cls(both.ways[once], np.concatenate([[0], some]).cumsum(), found)

    def some(self, most: int) -> Changes:
        """At most about `most` of the changes, evenly taken from the list."""
        chosen = np.arange(0, len(self), max(1, -(-len(self) // most)))
        number, found = self._spans(chosen)
        return Changes(self.ways[chosen], np.concatenate([[0], number]).cumsum(), found)

    def sets(self, chosen: Array) -> tuple[Array, Array]:
        """(first, spans) of sets of changes, each given by a row of `chosen` (sets, changes)."""
        at, which = np.nonzero(chosen)
        some, found = self._spans(which)
        first = np.zeros(len(chosen) + 1, np.int64)
        np.add.at(first, at + 1, some)
        return first.cumsum(), found

    def _spans(self, which: Array) -> tuple[Array, Array]:
        """Number of spans of each of the changes `which`, and all of these spans."""
        number = np.diff(self.first)[which]
        behind = np.cumsum(number)
        return number, self.spans[
            np.repeat(self.first[which] - behind + number, number) + np.arange(number.sum())
        ]


@cache
def machine_code() -> dict[str, Callable[..., int]] | None:
    """The loops of spans.py by name as machine code, compiled once; None without llvmlite."""
    made = all_compiled(spans.PARTS)
    return None if made is None else {f.__name__: run for f, run in zip(spans.PARTS, made)}


@cache
def plain_code() -> dict[str, Callable[..., int]]:
    """The loops of spans.py by name as plain Python."""
    return {f.__name__: interpreted(f) for f in spans.PARTS}


class Holds:
    """The tables of one problem, which `profiles` describes. `forced` tasks are not kept from forward."""

    def __init__(self, problem: Problem, profiles: Profiles, forced: Sequence[int]) -> None:
        self.number, self.stages = problem.num_forward, profiles.never
        made = machine_code()
        self.code = plain_code() if made is None else made
        # Python's integers have as many bits as there are stages.
        self.kind = object if made is None else np.int64
        self.places = self.stages if made is None else PLACES
        self.words = -(-self.stages // self.places)
        self.size = self.number * self.words
        n, free, limit = self.number, profiles.droppable.tolist(), profiles.limit
        self.free = np.flatnonzero(profiles.droppable)
        self.readers = profiles.readers
        inputs = [[p for p in problem.reads[u] if free[p]] for u in range(n)]
        every = (1 << self.stages) - 1
        self.everything = self._rows([every])
        late = {u: (1 << self.stages - 1 - j) - 1 for u, j in limit.items() if j < self.stages}
        pinned = [late.get(u, 0) if free[u] else every for u in range(n)]
        allowed = [every >> 1 if mark and free[u] else every for u, mark in enumerate(forced)]
        place = [1 << self.places - 1 - j % self.places for j in range(self.stages)]
        ones = (1 << self.places) - 1
        tables = (
            *rows(profiles.readers),
            *rows(inputs),
            *(self._rows(of) for of in (self._sets(profiles.asked), allowed, pinned)),
            ints([*(j // self.places for j in range(self.stages)), self.words - 1]),
            np.array([*place, 0], self.kind),
            np.array([*(ones ^ p - 1 for p in place), ones], self.kind),
            np.arange(n),
        )
        for table in tables:
            table.flags.writeable = False
        self.tables = (n, self.words, ones, *map(Fixed, tables))
        scratch = ((n, np.int64), (self.size, self.kind), (self.size, self.kind), (self.stages, np.int64))
        self.scratch = tuple(Fixed(np.zeros(size, kind)) for size, kind in scratch)
        self._room = ROOM

    @property
    def nbytes(self) -> int:
        """Size of one schedule."""
        return 2 * 8 * self.size

    def _sets(self, stages: Sequence[Sequence[int]]) -> list[int]:
        """An integer with one bit per stage for each set of stages."""
        found, last = [], self.stages - 1
        for row in stages:
            bits = 0
            for j in row:
                bits |= 1 << last - j
            found.append(bits)
        return found

    def _rows(self, sets: Sequence[int]) -> Array:
        """Such integers as rows of bits, concatenated."""
        spare, ones = self.words * self.places - self.stages, (1 << self.places) - 1
        shifts = [w * self.places for w in reversed(range(self.words))]
        return np.array([bits << spare >> shift & ones for bits in sets for shift in shifts], self.kind)

    # -- schedules ---------------------------------------------------------------------------------

    def of(self, runs: Sequence[Runs]) -> Held:
        """The schedules of `runs`, without runs that nothing reads."""
        again = self._rows(self._sets([row for each in runs for row in each.stages])).reshape(len(runs), -1)
        state = Held(np.tile(self.everything, self.number) & ~again, again)
        self.settle(state)
        return state

    def of_sets(self, sets: Array) -> Held:
        """Schedules that hold the task sets in `sets` (schedules, stages); sets are bits, task 0 lowest."""
        bits = []
        for row in sets.tolist():
            for u in range(self.number):
                stages = [j for j in range(self.stages) if row[j] >> u & 1]
                bits += self._sets([stages])
        held = self._rows(bits).reshape(len(sets), -1)
        state = Held(held, np.zeros((len(sets), self.size), self.kind))
        self.settle(state)
        return state

    def sets(self, states: Held) -> Array:
        """Inverse of `of_sets`: for each state the sets held when each stage begins, and after the last."""
        found = np.zeros((len(states), self.stages + 1), np.int64)
        held = states.held.reshape(len(states), self.number, self.words)
        for j in range(self.stages):
            word, place = divmod(j, self.places)
            bits = (held[:, :, word] >> self.places - 1 - place & 1).astype(np.int64)
            found[:, j] = (bits << np.arange(self.number)).sum(axis=1)
        return found

    def settle(self, states: Held) -> None:
        """Derive from what is held which tasks are recomputed."""
        changed = self.scratch[0].array
        held, runs = states.held.reshape(-1), states.runs.reshape(-1)
        for at in range(len(states)):
            changed[:] = 1
            self.code["settle"](*self.tables[:10], held, runs, at * self.size, changed)

    def runs(self, states: Held, at: int) -> Runs:
        """The runs of one of `states`."""
        num, stage = self.runs_of(states[at : at + 1])
        last, every = np.cumsum(num[0]).tolist(), stage.tolist()
        return Runs(tuple(tuple(every[b - k : b]) for k, b in zip(num[0].tolist(), last)))

    def runs_of(self, states: Held) -> tuple[Array, Array]:
        """How often each forward task is recomputed (states, tasks); the stages of all these runs,
        concatenated.
        """
        num, runs = np.zeros((len(states), self.number), np.int64), states.runs.reshape(-1)
        total = self.code["counted"](num.size, self.words, runs, num.reshape(-1))
        stage = np.zeros(max(1, total), np.int64)
        self.code["listed"](num.size, self.words, self.tables[2], runs, stage)
        return num, stage[:total]

    def edited(self, state: Held, first: Array, spans: Array) -> Held:
        """New states: number k is the first of `state` changed by the rows of `spans` from first[k] to
        first[k + 1].
        """
        count = len(first) - 1
        new = Held(*(np.zeros((count, self.size), self.kind) for _ in range(2)))
        self.code["edited"](
            *self.tables, *self.scratch, count, *_flat(state), first, _some(spans), *_flat(new)
        )
        return new

    def moved(self, states: Held, tasks: Array, which: Array, kinds: Array) -> Held:
        """`states`, each changed at up to as many tasks as `tasks` (states, changes) has columns; -1 is none.

        The change is at the task's event number `which`, modulo its number of events. Where there is no
        change of kind 1, that of kind 0 is made.
        """
        new = Held(states.held.copy(), states.runs.copy())
        room = np.zeros(4 * (self.number + 1), np.int64)
        changes = (tasks.reshape(-1), which.reshape(-1), kinds.reshape(-1))
        self.code["moved"](*self.tables, *self.scratch, *tasks.shape, *changes, room, *_flat(new))
        return new

    def run_in(self, state: Held, stage: int) -> Array:
        """The tasks that are recomputed in a stage of one schedule."""
        word, place = divmod(stage, self.places)
        row = state.runs.reshape(self.number, self.words)[:, word]
        return np.flatnonzero((row >> self.places - 1 - place & 1).astype(np.int64))

    def changes(self, state: Held, stage: int = -1, tasks: Array | None = None) -> Changes:
        """Every single change of `state`, or of these tasks; with a `stage` only of what is held in it or in
        the next one.
        """
        some = self.free if tasks is None else tasks
        while True:
            room, more = self._room, self.number + 1
            ways, first = np.zeros(3 * room, np.int64), np.zeros(room + 1, np.int64)
            found = np.zeros(4 * (room + more), np.int64)
            count = self.code["changes"](
                *self.tables, *self.scratch, *_flat(state), len(some), _some(some), stage, room, ways,
                first, found,
            )  # fmt: skip
            if count != spans.NO_ROOM:
                first = first[: count + 1]
                return Changes(ways[: 3 * count].reshape(-1, 3), first, found.reshape(-1, 4)[: first[-1]])
            self._room *= 2


def _flat(states: Held) -> tuple[Array, Array]:
    return states.held.reshape(-1), states.runs.reshape(-1)


def _some(array: Array) -> Array:
    """The array flattened, with at least one number, because an empty array has no address."""
    return array.reshape(-1) if array.size else np.zeros(1, np.int64)
