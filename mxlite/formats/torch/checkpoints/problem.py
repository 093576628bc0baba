"""A rehearsed step as a problem for the planner: a chain of submodules, of which each keeps some bytes.

    forward    region 0 > region 1 > ... > head            o values kept: the output of each region,
    backward   region 0 < region 1 < ... < head              what autograd keeps inside of it, and before it

What a region keeps inside can be dropped and made again from its input, which is what a checkpoint does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....memplan import Problem, Task, Value
from .rehearsal import Rehearsal, Span

INSIDE = "submodule"
"""The kind of a task that a checkpoint runs again; its name is the submodule's."""


def problem_of(seen: Rehearsal, regions: Sequence[Span]) -> Problem:
    """The chain of a rehearsed step that is cut into regions."""
    chain = _Chain(seen)
    source = chain.value("input", 0)
    places = [0]
    for span in regions:
        gap = chain.value(f"{span.name}.before", _kept(seen, places[-1], span.start))
        chain.forward.append(Task(f"{span.name}.before", "between", (source,), (gap,), recomputable=False))
        out = chain.value(f"{span.name}.out", span.out_bytes)
        chain.forward.append(Task(f"{span.name}.out", "output", (source,), (out,), recomputable=False))
        inside = chain.value(span.name, span.saved_bytes)
        room = max(seen.live[span.start : span.stop + 1]) - seen.live[span.stop]
        again = Task(span.name, INSIDE, (source,), (inside,), workspace=max(0, room), seconds=span.seconds)
        chain.forward.append(again)
        chain.blocks.append((span, (source, gap, out, inside)))
        source = out
        places.append(span.stop)
    return chain.closed(source, places[-1])


def _kept(seen: Rehearsal, start: int, stop: int) -> int:
    """Bytes by which what lives has grown between two places."""
    return max(0, seen.live[stop] - seen.live[start])


class _Chain:
    """Values and tasks of a chain."""

    def __init__(self, seen: Rehearsal) -> None:
        self.seen = seen
        self.values: list[Value] = []
        self.forward: list[Task] = []
        self.backward: list[Task] = []
        self.blocks: list[tuple[Span, tuple[int, int, int, int]]] = []

    def value(self, name: str, nbytes: int) -> int:
        self.values.append(Value(name, nbytes))
        return len(self.values) - 1

    def closed(self, source: int, place: int) -> Problem:
        """The problem, with what follows the last region, and the backward pass."""
        seen = self.seen
        head = self.value("head", _kept(seen, place, seen.forward))
        room = max(seen.live[place : seen.forward + 1]) - seen.live[seen.forward]
        self.forward.append(
            Task("head", "head", (source,), (head,), workspace=max(0, room), recomputable=False)
        )
        starts = [seen.forward, *(span.backward for span, _ in reversed(self.blocks)), len(seen.live) - 1]
        reads = [(source, head), *((*values,) for _, values in reversed(self.blocks))]
        seconds = [0.0, *(2 * span.seconds for span, _ in reversed(self.blocks))]
        gradient: tuple[int, ...] = ()
        left: list[int] = []
        for i, read in enumerate(reads):
            start, stop = starts[i], starts[i + 1]
            arrived = self.value(f"gradient{i}", self.values[read[0]].nbytes)
            made = sum(n for when, n in seen.births.values() if start < when <= stop)
            left.append(self.value(f"parameters{i}", made))
            most = max(seen.live[start : stop + 1]) - seen.live[start]
            room = max(0, most - made - self.values[arrived].nbytes)
            inputs = (*read, *gradient)
            outputs = (arrived, left[-1])
            self.backward.append(
                Task(f"backward{i}", "backward", inputs, outputs, workspace=room, seconds=seconds[i])
            )
            gradient = (arrived,)
        self.backward.append(Task("gradients", "update", tuple(left), ()))
        return Problem(
            (*self.forward, *self.backward), tuple(self.values), len(self.forward), dict(seen.fixed)
        )
