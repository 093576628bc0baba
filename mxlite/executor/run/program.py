"""A planned step with every array in place: a flat list of kernel calls, pushed in segments.

A **segment** is a run of consecutive steps that the engine sees as one operation. It reads and writes the
tags of the arrays a user can see, so that the user's operations in between are ordered correctly.
Among themselves segments are ordered by tags of their own, one each, after the plan's
predecessors: data as well as bytes that are reused. Where the plan leaves segments unordered they may
run concurrently. Previews (see `plan/lower.py`) are segments that a whole step leaves out.

    segment 0   writes done0                      reads weights ...
    segment 1   writes done1   reads done0        reads weights ...      writes outputs
    segment 2   writes done2   reads done0 done1                         writes gradients

Each copy to host memory or back is a segment of its own, so that it may run beside the kernels; so is each
collective, which writes the tag WIRE, since all ranks must run theirs in one order, and so is each end of a
transfer between devices, which the program of all devices joins with the other end.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from ...backends.checks import guard
from ...comm import WIRE
from ...core import config
from ...engine import get_engine, Var, Vars
from ...graph import Node
from ...memplan import check, MemoryPlan, RUN
from ..placement.transfer import Receive, Transfer
from ..plan.lower import Call, Lowered, SCRATCH
from ..plan.step import Key
from .arena import Arena, BROKEN_OFF
from .away import held_bytes, Kept, LOCK, settle
from .calls import call_of, views_of
from .guard import Layout, Watchman
from .segment import Segment
from .sheet import Sheet


class Program:
    """A step that can be pushed: `push_forward`, then `push_backward`.

    `arrays` maps every key in `lowered.step.owned` to its array (an object with `storage` and `var`).
    `states` are the nodes' own, shared by the programs of one executor, and those that both ends of a
    transfer share, by its number.
    """

    def __init__(
        self,
        lowered: Lowered,
        plan: MemoryPlan,
        arrays: Mapping[Key, Any],
        arena: Arena,
        rng_state: Any = None,
        rng_var: Var | None = None,
        states: dict[Node | int, dict[str, Any]] | None = None,
    ) -> None:
        self.lowered = lowered
        self.plan = plan
        self.arrays = arrays
        self.arena = arena
        self.rng_state = rng_state
        self.rng_var = rng_var
        self.bulk_size = config.bulk_size()
        self.states = {} if states is None else states
        self.segments: list[Any] = []
        self.tail: tuple[Var, ...] = ()  # what the next user of the arena waits for
        self.forward_tail: tuple[Var, ...] = ()  # the same after the forward pass alone
        self.num_forward = 0  # segments
        self.previews: frozenset[int] = frozenset()  # segments
        self.num_constant = 0  # segments
        self.kept: list[Kept] = []
        self._sources: tuple[Var, ...] = ()  # inputs of the constant ones
        self._seen: list[int] = []  # their numbers of writes when they last ran
        self._build()
        self._generation = arena.generation

    @property
    def is_outdated(self) -> bool:
        """True if the arena is to have another block than the one this program lies in."""
        return self._generation != self.arena.generation

    @property
    def may_go_backward(self) -> bool:
        """True if a backward pass may follow the forward pass."""
        return self.plan.problem.num_forward < len(self.plan.problem.tasks)

    def push_forward(self, told: Sequence[Any] = ()) -> None:
        """Push the forward pass. It waits for the arena's former user, whether that failed or not.

        `told` are the actions of a program on a GPU just before, in the same operation; see GraphProgram.
        """
        try:
            self._enter(range(self.num_forward), told)
            self.arena.holder, self.arena.tail = self, self.forward_tail
        except BaseException:
            self.break_off()
            raise

    def push_backward(self, told: Sequence[Any] = ()) -> None:
        """Push backward and update; the forward pass must have been the last to use the arena."""
        try:
            self._push(self.segments[self.num_forward :], False, told)
            self.arena.holder, self.arena.tail = None, self.tail
        except BaseException:
            self.break_off()
            raise

    def push_step(self, told: Sequence[Any] = ()) -> None:
        """Push forward, backward and update at once."""
        try:
            self._push_whole(told)
        except BaseException:
            self.break_off()
            raise

    def _push_whole(self, told: Sequence[Any]) -> None:
        self._enter([g for g in range(len(self.segments)) if g not in self.previews], told)
        self.arena.holder, self.arena.tail = None, self.tail

    @property
    def passes(self) -> list[Any]:
        """All segments created so far."""
        return self.segments

    def break_off(self) -> None:
        """Handle an interrupt between two pushes, often while one waits for room: what was pushed still runs.

        So the next user waits for every segment. No result of this program can be relied on.
        """
        self.arena.holder = BROKEN_OFF
        self.arena.tail = tuple(dict.fromkeys((*self.arena.tail, *(s.done for s in self.passes))))
        self._seen = []

    def _enter(self, segments: Sequence[int], told: Sequence[Any]) -> None:
        """Push these, except constant ones that would compute the same."""
        if self.kept:
            settle(self.kept)
        with LOCK if self.kept else nullcontext():
            for kept in self.kept:
                kept.ready()
            start = 0
            if self.num_constant:
                now = [v.pushes for v in self._sources]
                if now == self._seen:
                    start = self.num_constant
                self._seen = now
            self._push([self.segments[g] for g in segments if g >= start], True, told)

    def _push(self, segments: list[Any], first: bool, told: Sequence[Any]) -> None:
        assert not told
        push, lane = get_engine().push, self.arena.lane
        tail = self.arena.tail if first else ()
        for n, s in enumerate(segments):
            reads, writes = s.held
            writes = (*writes, *tail) if tail and not n else writes
            push(s, reads, writes, name=s.names[0], device=lane, kind=s.kind)

    # -- building ------------------------------------------------------------------------------

    def _build(self) -> None:
        plan, lowered = self.plan, self.lowered
        groups = self._groups()
        if config.check_plan():
            check(plan, self._order(groups))
        block, offsets, watchman = self.arena.block, plan.offsets, None
        if guard.on:
            layout = Layout.of(plan)
            block, offsets = self.arena.guarded(layout.nbytes), layout.offsets
            watchman = Watchman(lowered, plan, layout, block, self.arrays)
        views = self._views(block, offsets)
        with lowered.backend.running(lowered.threads):
            calls = [self._call(s, views, block, offsets) for s in range(len(plan.schedule.task))]
        self.kept = self._residents(calls)
        if watchman is not None:
            calls = [watchman.watched(s, call) for s, call in enumerate(calls)]
        num_forward, num_constant = plan.schedule.num_forward, lowered.step.num_constant
        self.num_forward = groups[num_forward - 1] + 1 if num_forward else 0
        self.num_constant = groups[num_constant - 1] + 1 if num_constant else 0
        self.segments = self._linked(groups, calls)
        self.previews = previews_of(plan, groups)
        before = bridged(self._before(groups, watchman is not None), self.previews)
        # If some are skipped, the first of the others waits for the arena's former user.
        start = next(
            (g for g in range(self.num_constant, len(before)) if g not in self.previews), len(before)
        )
        for g in range(start + 1, len(before)):
            if all(p < start for p in before[g]):
                before[g] = (*before[g], start)
        constant = self.segments[: self.num_constant]
        self._sources = tuple({v: None for segment in constant for v in segment.reads})
        for g, segment in enumerate(self.segments):
            come_behind(segment, tuple(self.segments[p].done for p in before[g]))
        self.forward_tail = self._sinks(before[: self.num_forward])
        self.tail = self._sinks(before)

    def _groups(self) -> list[int]:
        """The segment of each step."""
        return segments_of(self.plan, self.bulk_size, self.lowered.step.num_constant)

    def _order(self, groups: list[int]) -> list[tuple[int, ...]]:
        """Order that is really enforced between steps, for the judge."""
        return step_order(self.plan, self.bulk_size, self.lowered.step.num_constant)

    def _segment(self, number: int, first: int, sheet: Sheet) -> Any:
        """A segment without calls yet."""
        lowered = self.lowered
        around = partial(lowered.backend.running, lowered.threads) if lowered.tuned else nullcontext
        kind = lowered.kind if self.plan.schedule.kinds[first] == RUN else "compute"
        kind = "io" if is_collective(self.plan, first) else kind
        return Segment(Var(f"segment{number}"), first, around, lowered.backend.join, sheet, kind)

    def _views(self, block: Any, offsets: tuple[int, ...]) -> list[Any]:
        """The array of each instance: its owner's, or a part of the arena or of host memory."""

        def owned(where: Key) -> Any:
            array = self.arrays[where]
            return array.away.plain if where in self.lowered.step.forms else array.storage

        host_block: Any = self.arena.host_block if self.plan.hosted else None
        return views_of(self.lowered, self.plan, owned, block, offsets, host_block)

    def _linked(self, groups: list[int], calls: list[Callable[[], None]]) -> list[Any]:
        """Segments with their calls, and the user-visible arrays that each reads and writes."""
        schedule, plan, lowered = self.plan.schedule, self.plan, self.lowered
        count = groups[-1] + 1 if groups else 0
        sheet = Sheet(lowered, plan, self._measured_bytes())
        segments = [self._segment(g, groups.index(g), sheet) for g in range(count)]
        reads: list[dict[Var, None]] = [{} for _ in range(count)]
        writes: list[dict[Var, None]] = [{} for _ in range(count)]
        made_in: dict[int, int] = {}
        for s, t in enumerate(schedule.task):
            g = groups[s]
            segments[g].calls.append(calls[s])
            if schedule.kinds[s] != RUN:
                v = schedule.value_of[schedule.inputs[s][0]]
                segments[g].names.append(f"copy of {plan.problem.values[v].name}")
                continue
            segments[g].names.append(plan.problem.tasks[t].name)
            for v, i in zip(plan.problem.tasks[t].inputs, schedule.inputs[s]):
                # An array that the segment itself has written is no input: old poison must not stick.
                if (where := lowered.key[v]) is not None and made_in.get(i) != g:
                    reads[g][self.arrays[where].var] = None
            if self.rng_var is not None and lowered.calls[t].stream >= 0:
                reads[g][self.rng_var] = None
            if plan.problem.tasks[t].exchanges and self._transfer(t) is None:
                writes[g][WIRE] = None
            made_in.update((o, g) for o in schedule.outputs[s] if o >= 0)
            changed = [schedule.value_of[o] for o in schedule.outputs[s] if o >= 0]
            for v in (*changed, *plan.problem.tasks[t].mutates):
                if (where := lowered.key[v]) is not None:
                    writes[g][self.arrays[where].var] = None
        for segment, r, w in zip(segments, reads, writes):
            segment.reads, segment.writes = tuple(r), tuple(w)
        return segments

    def _before(self, groups: list[int], is_watched: bool) -> list[tuple[int, ...]]:
        """For each segment the earlier ones that it waits for."""
        before, lowered = segment_order(self.plan, groups), self.lowered
        # Two at a time would compete for the cores; and a guarded arena has other offsets than planned.
        if is_watched:
            return [(g - 1,) if g else () for g in range(len(before))]
        if lowered.kind == "team":
            return in_turn(before, {g for s, g in enumerate(groups) if is_alone(self.plan, s)})
        return before

    def _measured_bytes(self) -> int:
        """Bytes of the arena and of every array outside it."""
        return self.arena.measured_bytes + held_bytes(list(self.arrays.values()))

    def _sinks(self, before: list[tuple[int, ...]]) -> tuple[Var, ...]:
        waited = {p for g, row in enumerate(before) if g not in self.previews for p in row}
        return tuple(self.segments[g].done for g in range(len(before)) if g not in waited)

    def _transfer(self, t: int) -> int | None:
        """The number of the transfer that a task is an end of."""
        op, attrs = self.lowered.calls[t].node.op, self.lowered.calls[t].node.attrs
        return attrs.number if op is not None and issubclass(op, Transfer) else None

    def _state(self, call: Call) -> dict[str, Any] | None:
        if "state" not in call.kernel.signature.services:
            return None
        node = call.node.forward or call.node
        both_ends = node.op is not None and issubclass(node.op, Transfer)
        return self.states.setdefault(node.attrs.number if both_ends else node, {})

    @property
    def transfers(self) -> dict[int, tuple[int, bool]]:
        """The segments that are ends of transfers: the number of each, and whether it receives."""
        found: dict[int, tuple[int, bool]] = {}
        schedule = self.plan.schedule
        for g, segment in enumerate(self.segments):
            t = schedule.task[segment.first]
            number = self._transfer(t) if schedule.kinds[segment.first] == RUN else None
            if number is not None:
                found[g] = number, self.lowered.calls[t].node.op is Receive
        return found

    def _residents(self, calls: Sequence[Callable[[], None]]) -> list[Kept]:
        """Weights that this program keeps in another form, with the calls that read them."""
        plan, lowered = self.plan, self.lowered
        around = partial(lowered.backend.running, lowered.threads)
        kept = []
        for s, t in enumerate(plan.schedule.task):
            for v in plan.problem.tasks[t].inputs if lowered.step.forms else ():
                where = lowered.key[v]
                if where is not None and where in lowered.step.forms:
                    form = lowered.step.forms[where]
                    kept.append(Kept(self.arrays[where].away, form, around, partial(form.point, calls[s])))
        return kept

    def _copy(self, target: Any, source: Any) -> Callable[[], None]:
        """A call that copies an array to host memory or back."""
        return partial(self.lowered.backend.copy, target, source)

    def _call(self, s: int, views: list[Any], block: Any, offsets: tuple[int, ...]) -> Callable[[], None]:
        plan, schedule = self.plan, self.plan.schedule
        if schedule.kinds[s] != RUN:
            return self._copy(views[schedule.outputs[s][0]], views[schedule.inputs[s][0]])
        owned = self.arrays.get(SCRATCH) if is_collective(plan, s) else None
        scratch = None if owned is None else owned.storage
        return call_of(self.lowered, plan, s, views, block, offsets, self.rng_state, self._state, scratch)


def segments_of(plan: MemoryPlan, size: int, num_constant: int = 0) -> list[int]:
    """The segment of each step: runs of `size` steps, cut after the constant ones and the forward pass, and
    around previews.

    Each copy is a segment by itself, and so is each collective; one ends where a value that it sends is made.
    """
    schedule, tasks = plan.schedule, plan.problem.tasks
    result: list[int] = []
    group, taken, cuts = -1, size, {num_constant, schedule.num_forward}
    is_preview = False
    ends = _last_makers(plan)
    for s, (kind, t) in enumerate(zip(schedule.kinds, schedule.task)):
        was, is_preview = is_preview, kind == RUN and tasks[t].preview
        alone = is_alone(plan, s)
        if taken == size or alone or s in cuts or was != is_preview:
            group, taken = group + 1, 0
        taken = size if alone or s in ends else taken + 1
        result.append(group)
    return result


def _last_makers(plan: MemoryPlan) -> set[int]:
    """For each message among ranks the step that makes the last of what it carries."""
    schedule, made, found = plan.schedule, dict[int, int](), set[int]()
    for s, (ins, outs) in enumerate(zip(schedule.inputs, schedule.outputs)):
        if is_collective(plan, s):
            found.add(max((made[i] for i in ins if i in made), default=-1))
        else:
            made.update(dict.fromkeys(outs, s))
    return found


def is_collective(plan: MemoryPlan, s: int) -> bool:
    """True if step `s` of the schedule exchanges messages with other ranks."""
    schedule = plan.schedule
    return schedule.kinds[s] == RUN and plan.problem.tasks[schedule.task[s]].exchanges > 0


def is_alone(plan: MemoryPlan, s: int) -> bool:
    """True if step `s` is a segment of its own, which may run beside the kernels."""
    return plan.schedule.kinds[s] != RUN or is_collective(plan, s)


def come_behind(segment: Any, before: tuple[Var, ...] = ()) -> None:
    """Tell a segment what it waits for besides its inputs: from now on its set of Vars is complete."""
    segment.held = Vars((*segment.reads, *before)), Vars((segment.done, *segment.writes))


def previews_of(plan: MemoryPlan, groups: Sequence[int]) -> frozenset[int]:
    """The segments that a whole step leaves out."""
    schedule, tasks = plan.schedule, plan.problem.tasks
    steps = zip(groups, schedule.kinds, schedule.task)
    return frozenset(g for g, kind, t in steps if kind == RUN and tasks[t].preview)


def bridged(before: list[tuple[int, ...]], left_out: Container[int]) -> list[tuple[int, ...]]:
    """`before` with shortcuts: a segment waits also for the predecessors of those that may be left out."""
    result: list[tuple[int, ...]] = []
    for row in before:
        more = (q for p in row if p in left_out for q in result[p])
        result.append(tuple(dict.fromkeys((*row, *more))))
    return result


def in_turn(before: list[tuple[int, ...]], copies: Container[int]) -> list[tuple[int, ...]]:
    """`before` with kernels one at a time; the segments `copies` may still run concurrently."""
    result, last = [], -1
    for g, earlier in enumerate(before):
        if g not in copies:
            if last >= 0:
                earlier = (last, *(p for p in earlier if p in copies))
            last = g
        result.append(earlier)
    return result


def segment_order(plan: MemoryPlan, groups: list[int]) -> list[tuple[int, ...]]:
    """For each segment the earlier ones it must wait for.

    Segments without predecessors wait for the first: it is the one that waits for the arena's former user.
    """
    before: list[set[int]] = [set() for _ in range(groups[-1] + 1 if groups else 0)]
    for s, row in enumerate(plan.predecessors):
        before[groups[s]].update(groups[p] for p in row)
    for g, earlier in enumerate(before):
        earlier.discard(g)
        if not earlier and g:
            earlier.add(0)
    return [tuple(sorted(earlier)) for earlier in before]


def step_order(plan: MemoryPlan, size: int, num_constant: int = 0) -> list[tuple[int, ...]]:
    """The order that the engine really enforces between steps, for the judge."""
    groups = segments_of(plan, size, num_constant)
    before = bridged(segment_order(plan, groups), previews_of(plan, groups))
    last = {g: s for s, g in enumerate(groups)}
    return [
        (s - 1,) if s and groups[s - 1] == g else tuple(last[p] for p in before[g])
        for s, g in enumerate(groups)
    ]
