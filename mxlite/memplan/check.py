"""The judge of plans. Shares no code with the planners: it replays the plan byte by byte.

Two questions. *In sequence*: does every read see the value it was promised? The judge walks the steps,
remembers which instance each byte range holds, and throws out whatever is written over. *In the engine's
order*: would it still be so if steps ran in any order that respects the given predecessors? For that the
judge knows all ancestors of each step (bit sets) and demands, whenever bytes change hands, that
everybody who used the old content is an ancestor of the new writer.

A whole step leaves previews out. So no other task may read what a preview writes, and the required order must
hold without paths that go through previews.

Host memory is a second such range of bytes. Only copies read and write it, and they carry one value from
one side to the other.

Tests call it on every plan; MXLITE_CHECK_PLAN=1 makes the executor call it too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ..core.errors import PlanError

if TYPE_CHECKING:
    from .placement.liveness import LiveRange
    from .plan import MemoryPlan

_RUN, _STORE, _FETCH = 0, 1, 2  # kinds of steps, as a plan writes them


def check(plan: MemoryPlan, before: Sequence[Sequence[int]] | None = None) -> None:
    """Raise PlanError unless the plan is sound.

    `before[s]` are the steps that the engine surely finishes before step s starts; None judges the
    plan's own sequence only. O(steps^2 / 64) with `before`, else O(steps log steps).
    """
    if plan.budget_bytes is not None and plan.peak_bytes > plan.budget_bytes:
        raise PlanError(f"The plan takes {plan.peak_bytes} B, more than its budget of {plan.budget_bytes} B.")
    _check_tasks(plan)
    _check_copies(plan)
    _Replay(plan, before).run()


def _check_tasks(plan: MemoryPlan) -> None:
    """Check that every task runs once as itself, forward before backward, on values that are its own."""
    problem, schedule = plan.problem, plan.schedule
    seen: set[tuple[int, int]] = set()
    previewed = {v for t in problem.tasks if t.preview for v in t.outputs}
    for s, (kind, t, k) in enumerate(zip(schedule.kinds, schedule.task, schedule.copy, strict=True)):
        if kind != _RUN:
            continue
        task = problem.tasks[t]
        if task.preview and (k or task.mutates or t >= problem.num_forward):
            raise PlanError(
                f"step {s}, {task.name!r}, is a preview that recomputes, changes state, or is late."
            )
        if not task.preview and (made := [v for v in task.inputs if v in previewed]):
            what = problem.values[made[0]].name
            raise PlanError(f"step {s}, {task.name!r}, reads {what!r}, which only a preview makes.")
        if (t, k) in seen:
            raise PlanError(f"step {s} runs copy {k} of {task.name!r} again.")
        seen.add((t, k))
        if (s < schedule.num_forward) != (t < problem.num_forward and k == 0):
            raise PlanError(f"step {s}, {task.name!r} copy {k}, is on the wrong side of the forward pass.")
        if k and not task.recomputable:
            raise PlanError(f"step {s} recomputes {task.name!r}, which must run once.")
        if k and task.mutates:
            raise PlanError(f"step {s} recomputes {task.name!r}, which changes state.")
        if tuple(schedule.value_of[i] for i in schedule.inputs[s]) != task.inputs:
            raise PlanError(f"step {s}, {task.name!r}, does not read the inputs of its task.")
        for o, v in zip(schedule.outputs[s], task.outputs, strict=True):
            if o >= 0 and schedule.value_of[o] != v:
                raise PlanError(f"step {s}, {task.name!r}, writes {schedule.value_of[o]} for value {v}.")
            if o < 0 and v >= 0 and (k == 0 if problem.values[v].fixed else v in task.always):
                raise PlanError(f"step {s}, {task.name!r}, never writes {problem.values[v].name!r}.")
            if o >= 0 and k and problem.values[v].fixed:
                raise PlanError(f"step {s} writes {problem.values[v].name!r} a second time.")
    if missing := [t.name for n, t in enumerate(problem.tasks) if (n, 0) not in seen]:
        raise PlanError(f"{len(missing)} tasks never run, {missing[0]!r} among them.")


def _check_copies(plan: MemoryPlan) -> None:
    """Check that copies carry one value from the arena to the host or back, within the host's capacity."""
    problem, schedule = plan.problem, plan.schedule
    for s, kind in enumerate(schedule.kinds):
        if kind == _RUN:
            continue
        if kind not in (_STORE, _FETCH):
            raise PlanError(f"step {s} is of an unknown kind, {kind!r}.")
        if len(schedule.inputs[s]) != 1 or len(schedule.outputs[s]) != 1 or schedule.outputs[s][0] < 0:
            raise PlanError(f"step {s} copies more or less than one array.")
        v, w = (schedule.value_of[row[s][0]] for row in (schedule.inputs, schedule.outputs))
        if v != w:
            raise PlanError(
                f"step {s} copies {problem.values[v].name!r} and calls it {problem.values[w].name!r}."
            )
        if problem.values[v].fixed:
            raise PlanError(f"step {s} copies {problem.values[v].name!r}, which is not in the arena.")
        if v not in problem.tasks[schedule.task[s]].outputs or schedule.copy[s]:
            raise PlanError(f"step {s} copies {problem.values[v].name!r} for a task that does not make it.")
    most = problem.host.capacity if problem.host is not None else None
    if most is not None and plan.host_bytes > most:
        raise PlanError(f"The plan takes {plan.host_bytes} B of host memory, and may take {most} B.")


def _places(
    plan: MemoryPlan, offsets: Sequence[int], ranges: Sequence[LiveRange], size: int, where: str
) -> dict[int, tuple[int, int]]:
    """Byte range [low, high) of each instance, in the arena or in host memory."""
    found = {}
    for low, r in zip(offsets, ranges, strict=True):
        for i in r.members:
            value = plan.problem.values[plan.schedule.value_of[i]]
            found[i] = _place(repr(value.name), value.nbytes, r.nbytes, low, size, where)
    return found


def _place(what: str, need: int, have: int, low: int, size: int, where: str) -> tuple[int, int]:
    if low < 0 or low % 64 or low + need > size or have < need:
        raise PlanError(f"{what} needs {need} B, but has {have} B at {low} of {size} B of {where}.")
    return low, low + need


def _check_found(plan: MemoryPlan, place: Container[int], host_place: Container[int]) -> None:
    """Check that `range_of` and `hosted`, which the executor looks instances up by, agree with the ranges."""
    range_of, members = plan.liveness.range_of, dict[int, int]()
    for b, r in enumerate(plan.liveness.ranges):
        members.update((i, b) for i in r.members)
    for i, v in enumerate(plan.schedule.value_of):
        b, is_hosted = range_of[i], i in plan.hosted
        if b != members.get(i, -1) or is_hosted != (i in host_place) or (is_hosted and i in place):
            name = plan.problem.values[v].name
            raise PlanError(
                f"{name!r} is looked for in buffer {b} or in host memory, but is not there alone."
            )


class _Replay:
    def __init__(self, plan: MemoryPlan, before: Sequence[Sequence[int]] | None) -> None:
        self.plan = plan
        problem, schedule, liveness = plan.problem, plan.schedule, plan.liveness
        self.problem = problem
        self.place = _places(plan, plan.offsets, liveness.ranges, plan.arena_bytes, "arena")
        self.host_place = _places(plan, plan.host_offsets, plan.host_ranges, plan.host_bytes, "host memory")
        _check_found(plan, self.place, self.host_place)
        self.workspace = {}
        for s, t in enumerate(schedule.task):
            need = problem.tasks[t].workspace
            if need and schedule.kinds[s] == _RUN:
                b = liveness.workspace_of.get(s, -1)
                if b < 0:
                    raise PlanError(f"step {s} needs {need} B of workspace and does not have it.")
                have, low = liveness.ranges[b].nbytes, plan.offsets[b]
                what = f"step {s} of workspace"
                self.workspace[s] = _place(what, need, have, low, plan.arena_bytes, "arena")
        # Content of the arena: pieces (low, high, content) sorted; content is an instance or ~step
        # (workspace). And of the host's memory.
        self.held: list[tuple[int, int, int]] = []
        self.hosted: list[tuple[int, int, int]] = []
        self.users: dict[int, list[int]] = {}  # content -> steps that wrote or read it
        self.written: set[int] = set()
        self.fixed_writer: dict[int, int] = {}
        self.fixed_readers: dict[int, list[int]] = {}
        self.ancestors: list[int] | None = None
        if before is not None:
            self.ancestors = []
            previews = sum(1 << s for s, t in enumerate(schedule.task) if problem.tasks[t].preview)
            for s, earlier in enumerate(before):
                bits = 0
                for p in earlier:
                    if not 0 <= p < s:
                        raise PlanError(f"step {s} waits for step {p}, which is not before it.")
                    through = self.ancestors[p]
                    if previews >> p & 1 and not previews >> s & 1:
                        through &= previews
                    bits |= through | 1 << p
                self.ancestors.append(bits)

    def name(self, instance: int) -> str:
        if instance < 0:
            return f"workspace of step {~instance}"
        return repr(self.problem.values[self.plan.schedule.value_of[instance]].name)

    def run(self) -> None:
        problem, schedule = self.problem, self.plan.schedule
        for s, t in enumerate(schedule.task):
            task = problem.tasks[t]
            ins, outs = schedule.inputs[s], [o for o in schedule.outputs[s] if o >= 0]
            if schedule.kinds[s] != _RUN:
                self.copy(s, ins[0], outs[0])
                continue
            for i in ins:
                self.read(s, i)
            spans = []
            for o in outs:
                v = schedule.value_of[o]
                if o in self.written:
                    raise PlanError(f"step {s}, {task.name!r}, writes {self.name(o)} again.")
                self.written.add(o)
                if problem.values[v].fixed:
                    self.change_fixed(s, v, task.name)
                    continue
                if o not in self.place:
                    raise PlanError(f"step {s}, {task.name!r}, writes {self.name(o)}, which has no place.")
                spans.append((*self.place[o], o))
            if s in self.workspace:
                spans.append((*self.workspace[s], ~s))
            spans.sort()
            for (_, high, a), (low, _, b) in pairwise(spans):
                if low < high:
                    raise PlanError(f"step {s}, {task.name!r}: {self.name(a)} and {self.name(b)} overlap.")
            for low, high, content in spans:
                self.write(s, low, high, content, ins, task.in_place, self.held)
            for v in task.mutates:
                self.change_fixed(s, v, task.name)

    def copy(self, s: int, source: int, target: int) -> None:
        """Copy to the host or back: a read on one side, a write on the other."""
        if target in self.written:
            raise PlanError(f"{self.worker(s)} writes {self.name(target)} again.")
        self.written.add(target)
        if self.plan.schedule.kinds[s] == _STORE:
            self.read(s, source)
            places, side = self.host_place, self.hosted
        else:
            self.read_in(s, source, self.host_place, self.hosted)
            places, side = self.place, self.held
        if target not in places:
            raise PlanError(f"{self.worker(s)} writes {self.name(target)}, which has no place.")
        self.write(s, *places[target], target, (), (), side)

    def read(self, s: int, i: int) -> None:
        problem, v = self.problem, self.plan.schedule.value_of[i]
        if problem.values[v].fixed:
            self.fixed_readers.setdefault(v, []).append(s)
            if v in self.fixed_writer:
                writer = self.fixed_writer[v]
                self.need(s, writer, lambda: f"{self.worker(s)} reads {self.name(i)}")
                task = self.plan.schedule.task
                by_update = problem.tasks[task[writer]].update
                if problem.producer[v] < 0 and (by_update or task[s] < problem.num_forward):
                    raise PlanError(
                        f"{self.worker(s)} reads {self.name(i)} after {self.step(writer)} changed it."
                    )
            elif problem.producer[v] >= 0:
                raise PlanError(f"{self.worker(s)} reads {self.name(i)} before it is made.")
            return
        self.read_in(s, i, self.place, self.held)

    def read_in(
        self,
        s: int,
        i: int,
        places: dict[int, tuple[int, int]],
        held: list[tuple[int, int, int]],
    ) -> None:
        """Check a read of the arena or of host memory."""
        if i not in places:
            raise PlanError(f"{self.worker(s)} reads {self.name(i)}, which the plan does not place.")
        low, high = places[i]
        if low == high and i in self.written:
            return  # no byte of it can be written over
        at = bisect_left(held, (low, -1, 0))
        if at == len(held) or held[at] != (low, high, i):
            there = [self.name(c) for lo, hi, c in held if lo < high and low < hi]
            raise PlanError(
                f"{self.worker(s)} reads {self.name(i)} at [{low}, {high}), but "
                f"{', '.join(there) or 'nothing'} is there."
            )
        self.need(s, self.users[i][0], lambda: f"{self.worker(s)} reads {self.name(i)}")
        self.users[i].append(s)

    def write(
        self,
        s: int,
        low: int,
        high: int,
        content: int,
        ins: Sequence[int],
        in_place: Sequence[tuple[int, int]],
        held: list[tuple[int, int, int]],
    ) -> None:
        """Put `content` into [low, high) of the arena or of the host's memory, `held`."""
        if low == high:
            return
        value_of = self.plan.schedule.value_of

        def why() -> str:
            return f"{self.worker(s)} writes {self.name(content)} where {self.name(old)} was"

        at = bisect_left(held, (low, -1, 0))
        if at and held[at - 1][1] > low:
            at -= 1
        rest = []  # what is left of a buffer cannot be read any more, but its users still count
        while at < len(held) and held[at][0] < high:
            lo, hi, old = held.pop(at)
            rest += [(a, b, old) for a, b in ((lo, low), (high, hi)) if a < b]
            if old in ins:
                pair = (value_of[content], value_of[old]) if content >= 0 else None
                if pair not in in_place or (lo, hi) != (low, high):
                    raise PlanError(
                        f"{self.worker(s)} writes {self.name(content)} over its input {self.name(old)}."
                    )
                if sum(value_of[i] == value_of[old] for i in ins) != 1:
                    raise PlanError(f"{self.worker(s)} reads {self.name(old)} twice and writes over it.")
            for user in self.users[old]:
                self.need(s, user, why)
        for piece in (*rest, (low, high, content)):
            insort(held, piece)
        self.users[content] = [s]

    def change_fixed(self, s: int, v: int, writer: str) -> None:
        def what() -> str:
            return f"{writer!r} writes {self.problem.values[v].name!r}"

        for reader in self.fixed_readers.pop(v, ()):
            self.need(s, reader, what)
        if v in self.fixed_writer:
            self.need(s, self.fixed_writer[v], what)
        self.fixed_writer[v] = s

    def need(self, s: int, earlier: int, why: Callable[[], str]) -> None:
        """Demand that step `earlier` is done when s starts; `why()` gives the message if it is not."""
        if earlier == s or self.ancestors is None:
            return
        if not self.ancestors[s] >> earlier & 1:
            raise PlanError(f"{why()}, but nothing makes it wait for {self.step(earlier)}.")

    def step(self, s: int) -> str:
        return f"step {s} ({self.worker(s)})"

    def worker(self, s: int) -> str:
        """Name of step s, for messages."""
        schedule = self.plan.schedule
        if schedule.kinds[s] == _RUN:
            return repr(self.problem.tasks[schedule.task[s]].name)
        way = "to the host" if schedule.kinds[s] == _STORE else "from the host"
        return f"copy of {self.name(schedule.inputs[s][0])} {way}"
