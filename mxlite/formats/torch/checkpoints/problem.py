"""A rehearsed step as a problem for the planner: a chain of submodules, of which each keeps some bytes.

    forward    region 0 > region 1 > ... > head            o values kept: the output of each region,
    backward   region 0 < region 1 < ... < head              what autograd keeps inside of it, and before it

The calls in a region are tasks. What is made inside can be dropped and made again from the region's input,
call by call, which is what a checkpoint does: whatever it does not keep runs again, in the order of the
forward pass, up to the last call that autograd keeps something of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ....memplan import MemoryPlan, Problem, Task, Value
from .rates import REGION_S, SELECTIVE_CALL_S
from .rehearsal import Rehearsal, Span
from .selective import Kept

Choice = Mapping[str, tuple[Kept, ...]]
"""The submodules that are checkpointed, and the calls whose results they keep."""


@dataclass(frozen=True)
class Group:
    """Calls [start, stop) of a region that are kept or recomputed together: they write the same storages.

    `inputs` and `outputs` are storages of the region: read from groups before, read after this one. Not
    `keepable` are results that others write, too, such as buffers.
    """

    name: str
    start: int
    stop: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    workspace: int
    seconds: float
    keepable: bool


class Region:
    """A submodule of a chain: its groups of calls that a checkpoint runs again."""

    def __init__(self, seen: Rehearsal, span: Span) -> None:
        self.span = span
        numbers = seen.calls_of(span)
        self.calls = seen.calls[numbers.start : numbers.stop]
        self._seen = seen
        self._ends = [*(call.place for call in self.calls[1:]), span.stop]
        own = seen.made_in(span.start, span.stop).keys() - span.out
        inside = f"{span.name}."
        saves = [(i - numbers.start, n) for i, at, n in seen.saves if f"{at}.".startswith(inside)]
        self.saved = {n for _, n in saves} & own
        last = max((i for i, _ in saves), default=0)
        stretches = [
            (a, b) for a, b in self._stretches() if a < last and any(c.writes for c in self.calls[a:b])
        ]
        self.groups = [self._group(start, stop) for start, stop in stretches]

    def _stretches(self) -> list[tuple[int, int]]:
        """Calls [start, stop) that belong together: from the first to the last that writes a storage."""
        found: list[tuple[int, int]] = []
        first: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            start = min((first.setdefault(n, i) for n in call.writes), default=i)
            while found and found[-1][1] > start:
                start = min(start, found.pop()[0])
            found.append((start, i + 1))
        return found

    def _group(self, start: int, stop: int) -> Group:
        seen, span = self._seen, self.span
        calls = self.calls[start:stop]
        place, end = calls[0].place, self._ends[stop - 1]
        own = seen.made_in(span.start, span.stop).keys() - span.out
        made = seen.made_in(place, end).keys() & own
        later = frozenset[int]().union(*(call.reads for call in self.calls[stop:]))
        outputs = tuple(sorted(n for n in made if n in self.saved or n in later))
        read = frozenset[int]().union(*(call.reads for call in calls))
        room = max(seen.live[place : end + 1]) - seen.live[place]
        writes = frozenset[int]().union(*(call.writes for call in calls))
        others = (call for call in seen.calls if not span.start <= call.place < span.stop)
        return Group(
            f"{span.name}:{start}",
            start,
            stop,
            tuple(sorted(read & own - made)),
            outputs,
            max(0, room - sum(seen.storages[n].nbytes for n in outputs)),
            sum(seen.seconds[end] - seen.seconds[call.place] for call, end in zip(calls, self._ends[start:])),
            all(seen.storages[n].made >= span.start for n in writes)
            and not any(call.writes & writes for call in others),
        )

    def kept(self, again: Collection[str]) -> tuple[Kept, ...]:
        """The calls to keep where the named groups run again: none where it is quicker to run all."""
        groups = [g for g in self.groups if g.name not in again and g.keepable]
        if sum(g.seconds for g in groups) <= 2 * len(self.calls) * SELECTIVE_CALL_S:
            return ()
        calls = ((i, self.calls[i]) for g in groups for i in range(g.start, g.stop))
        return tuple(Kept(i, c.operator, c.module) for i, c in calls if c.writes)

    def seconds(self, kept: tuple[Kept, ...]) -> float:
        """The time that a checkpoint takes, which keeps these calls."""
        numbers = {call.number for call in kept}
        again = sum(g.seconds for g in self.groups if g.start not in numbers)
        return again + REGION_S + (2 * len(self.calls) * SELECTIVE_CALL_S if kept else 0.0)


class Chain:
    """A rehearsed step that is cut into regions: `problem` is the planner's."""

    def __init__(self, seen: Rehearsal, spans: Sequence[Span]) -> None:
        self.regions = [Region(seen, span) for span in spans]
        self._seen = seen
        self._values: list[Value] = []
        self._forward: list[Task] = []
        self.problem = self._problem()

    def everything(self) -> Choice:
        """Ordinary checkpoints of all regions."""
        return {region.span.name: () for region in self.regions}

    def choice(self, plan: MemoryPlan) -> Choice:
        """The regions that a plan of the problem checkpoints, and what each keeps."""
        tasks = plan.problem.tasks
        again = {tasks[t].name for t, copy in zip(plan.schedule.task, plan.schedule.copy) if copy}
        chosen = (r for r in self.regions if any(g.name in again for g in r.groups))
        return {r.span.name: r.kept(again) for r in chosen}

    def seconds(self, choice: Choice) -> float:
        """The time of a choice's checkpoints."""
        return sum(r.seconds(choice[r.span.name]) for r in self.regions if r.span.name in choice)

    def _value(self, name: str, nbytes: int) -> int:
        self._values.append(Value(name, nbytes))
        return len(self._values) - 1

    def _grown(self, start: int, stop: int) -> int:
        """Bytes by which what lives has grown between two places."""
        return max(0, self._seen.live[stop] - self._seen.live[start])

    def _problem(self) -> Problem:
        seen, forward = self._seen, self._forward
        source, place = self._value("input", 0), 0
        reads: list[tuple[int, ...]] = []
        for region in self.regions:
            span = region.span
            gap = self._value(f"{span.name}.before", self._grown(place, span.start))
            forward.append(Task(f"{span.name}.before", "between", (source,), (gap,), recomputable=False))
            out = self._value(f"{span.name}.out", sum(seen.storages[n].nbytes for n in span.out))
            forward.append(Task(f"{span.name}.out", "output", (source,), (out,), recomputable=False))
            reads.append((source, gap, out, *self._inside(region, source)))
            source, place = out, span.stop
        head = self._value("head", self._grown(place, seen.forward))
        room = max(seen.live[place : seen.forward + 1]) - seen.live[seen.forward]
        forward.append(Task("head", "head", (source,), (head,), workspace=max(0, room), recomputable=False))
        reads.append((source, head))
        backward = self._backward(reads[::-1])
        return Problem((*forward, *backward), tuple(self._values), len(forward), dict(seen.fixed))

    def _inside(self, region: Region, source: int) -> list[int]:
        """The tasks of a region. Its backward finds all that they make: what is not kept runs again."""
        numbers: dict[int, int] = {}
        for group in region.groups:
            for n in group.outputs:
                numbers[n] = self._value(f"{region.span.name}/{n}", self._seen.storages[n].nbytes)
            inputs = (source, *(numbers[n] for n in group.inputs if n in numbers))
            outputs = tuple(numbers[n] for n in group.outputs)
            if outputs:
                made = Task(group.name, "call", inputs, outputs, workspace=group.workspace)
                self._forward.append(replace(made, seconds=group.seconds))
        return [*numbers.values()]

    def _backward(self, reads: list[tuple[int, ...]]) -> list[Task]:
        """The backward of what follows the last region, and of each region, from the last to the first."""
        seen, tasks = self._seen, []
        spans = [region.span for region in reversed(self.regions)]
        places = [seen.forward, *(span.backward for span in spans), len(seen.live) - 1]
        gradient: tuple[int, ...] = ()
        left: list[int] = []
        for i, (read, start, stop) in enumerate(zip(reads, places, places[1:])):
            arrived = self._value(f"gradient{i}", self._values[read[0]].nbytes)
            made = sum(s.nbytes for s in seen.made_in(start, stop).values() if s.released < 0)
            left.append(self._value(f"parameters{i}", made))
            most = max(seen.live[start : stop + 1]) - seen.live[start]
            room = max(0, most - made - self._values[arrived].nbytes)
            outputs = (arrived, left[-1])
            seconds = seen.seconds[stop] - seen.seconds[start]
            tasks.append(
                Task(f"backward{i}", "backward", (*read, *gradient), outputs, workspace=room, seconds=seconds)
            )
            gradient = (arrived,)
        tasks.append(Task("gradients", "update", tuple(left), ()))
        return tasks
