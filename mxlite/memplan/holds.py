"""What is held from one backward task to the next: schedules in a form that small changes leave sound.

Backward tasks are *stages*. Of each forward task and each stage one bit says whether its results are there
when the stage begins. All else follows, stage by stage, from the last forward task to the first: what a
stage's backward task reads, what a task that runs again in this stage reads, and what is held for the next
stage must be there; if it was not held, the task runs again.

    stage        0  1  2  3  4  5  6           stage        0  1  2  3  4  5  6
    read         .  r  .  .  .  r  .           read         .  r  .  .  .  r  .
    held         h  h  h  h  h  h  .           held         h  h  .  .  .  .  .
    runs again   .  .  .  .  .  .  .           runs again   .  .  .  .  .  R  .     and so do, at 5, those of
                                                                                    its inputs not held there

So any bits are a schedule: to drop something for a while is to clear bits, to keep it is to set them, and
changes of different tasks add up. Bits of what is not read until it is gone are cleared at once. The bits of
a task are one whole number, with stage 0 in the highest place: then "held for the next stage" is a shift, and
"held up to a read" is the carry of an addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .problem import Problem
from .profiles import Profiles
from .schedule import Runs

Edit = tuple[tuple[int, int, int], ...]
"""Changes of bits: (task, those that stay, those that are set)."""


@dataclass(frozen=True, slots=True)
class Held:
    """For each forward task the stages in which it is `held` when they begin, and those in which it `runs`
    again."""

    held: list[int]
    runs: list[int]


class _Stages(dict[int, tuple[int, ...]]):
    """Of each number that is asked for the stages in it, ascending."""

    def __init__(self, stages: int) -> None:
        super().__init__()
        self.stages = stages

    def __missing__(self, bits: int) -> tuple[int, ...]:
        found = self[bits] = tuple(j for j, c in enumerate(f"{bits:0{self.stages}b}") if c == "1")
        return found


class Holds:
    """The tables of one problem, which `profiles` describes. `forced` tasks are not kept from forward."""

    def __init__(self, problem: Problem, profiles: Profiles, forced: Sequence[int]) -> None:
        n, self.stages = problem.num_forward, profiles.never
        self.full = (1 << self.stages) - 1
        self.asked = [self.bits(row) for row in profiles.asked]
        self.readers = profiles.readers
        free = profiles.droppable.tolist()
        self.inputs = [[p for p in problem.reads[u] if free[p]] for u in range(n)]
        limit = profiles.limit
        self.pinned = [
            (self.span(limit[u] + 1, self.stages - 1) if u in limit else 0) if free[u] else self.full
            for u in range(n)
        ]
        first = self.full & ~(self.full >> 1)
        self.allowed = [
            self.full & ~first if mark and free[u] else self.full for u, mark in enumerate(forced)
        ]
        self.free = [u for u in range(n) if free[u]]
        self.stages_in = _Stages(self.stages)

    def bits(self, stages: Iterable[int]) -> int:
        """The number of a set of stages."""
        total = 0
        for j in stages:
            total |= 1 << (self.stages - 1 - j)
        return total

    def span(self, first: int, last: int) -> int:
        """Bits of the stages from `first` to `last`."""
        return ((1 << (last - first + 1)) - 1) << (self.stages - 1 - last) if first <= last else 0

    # -- schedules ---------------------------------------------------------------------------------

    def of(self, runs: Runs) -> Held:
        """As `runs`, without those that nothing reads."""
        again = [self.bits(row) for row in runs.stages]
        state = Held([self.full & ~bits for bits in again], again)
        self._settle(state, bytearray(b"\1" * len(again)))
        return state

    def runs(self, state: Held) -> Runs:
        """The runs of `state`."""
        return Runs(tuple(self.stages_in[bits] for bits in state.runs))

    def edited(self, state: Held, *edits: Edit) -> Held:
        """`state` with all of `edits`, one after another."""
        new = Held(state.held.copy(), state.runs.copy())
        changed = bytearray(len(new.held))
        for edit in edits:
            for u, stay, more in edit:
                new.held[u] = new.held[u] & stay | more
                changed[u] = 1
        self._settle(new, changed)
        return new

    def _settle(self, state: Held, changed: bytearray) -> None:
        """Find the runs of tasks that are `changed`, and of those whose readers' runs change by that."""
        held, runs, readers, asked, full = state.held, state.runs, self.readers, self.asked, self.full
        u = changed.rfind(1)
        while u >= 0:
            used = asked[u]
            for w in readers[u]:
                used |= runs[w]
            bits = held[u] & self.allowed[u] | self.pinned[u]
            reads = used & bits
            bits &= bits + reads ^ bits | reads
            again = (used | bits << 1) & ~bits & full
            held[u] = bits
            if again != runs[u]:
                runs[u] = again
                for p in self.inputs[u]:
                    changed[p] = 1
            u = changed.rfind(1, 0, u)

    # -- changes -----------------------------------------------------------------------------------

    def changes(self, state: Held, tasks: Iterable[int]) -> Iterator[tuple[int, Edit]]:
        """(task, edit) of every single change of these tasks."""
        for u in tasks:
            before = -1
            for event in self.events(state, u):
                for kind in (0, 1):
                    edit = self.change(state, u, before, event, kind)
                    if edit is not None:
                        yield u, edit
                before = event

    def events(self, state: Held, u: int) -> tuple[int, ...]:
        """The stages in which task u is read or runs, ascending."""
        used = self.asked[u] | state.runs[u]
        for w in self.readers[u]:
            used |= state.runs[w]
        return self.stages_in[used]

    def change(self, state: Held, u: int, before: int, event: int, kind: int) -> Edit | None:
        """A change of task u at `event`, which follows on the event `before`; None where there is none.

        What is held until then is dropped since the event before. With kind 1 other tasks that run for it now
        are held until they would have run again anyway. If it runs there, that run is saved by holding since
        it was there last; with kind 1 it is made earlier, where all its inputs were there last.
        """
        last, full = self.stages - 1, self.full
        if state.held[u] >> (last - event) & 1:
            gone = self.span(before + 1, event)
            cut: Edit = ((u, full & ~gone, 0),)
            if self.pinned[u] & gone:
                return None
            return self._lasting(state, u, cut) if kind else cut
        there = state.held[u] | state.runs[u]
        since = self._last_before(there, event)
        if not kind:
            return ((u, full, self.span(since + 1, event)),)
        inputs = self.inputs[u]
        if not any(state.runs[p] >> (last - event) & 1 for p in inputs):
            return None
        there = full
        for p in inputs:
            there &= state.held[p] | state.runs[p]
        earlier = self._last_before(there, event)
        return ((u, full, self.span(earlier + 1, event)),) if earlier > since else None

    def _last_before(self, bits: int, stage: int) -> int:
        """The last stage in `bits` before `stage`; -1 if there is none."""
        bits >>= self.stages - stage  # the lowest bit is now that of the stage before
        return stage - (bits & -bits).bit_length() if bits else -1

    def _lasting(self, state: Held, u: int, cut: Edit) -> Edit | None:
        """`cut`, with what runs again for it held until it would have run again anyway."""
        new = self.edited(state, cut)
        more: list[tuple[int, int, int]] = []
        for p in range(u):
            if new.runs[p] != state.runs[p]:
                for s in self.stages_in[new.runs[p] & ~state.runs[p]]:
                    later = state.runs[p] & ((1 << (self.stages - 1 - s)) - 1)
                    if later:
                        more.append((p, self.full, self.span(s + 1, self.stages - later.bit_length())))
        return (*cut, *more) if more else None
