"""A program on a GPU: its forward pass, its backward pass, or both are one operation and one graph.

    push_step       | told | ---- forward ---- backward ---- update ---- |        one operation, one launch
    push_forward    | told | ---- forward ---- |
    push_backward                      | told | ---- backward ---- |

All kernels of a device go to one stream in the order of the engine's operations, so the content of the arena
is passed on between programs without events. Inside of a graph, steps lie on several streams (`streams`
for kernels, one for copies in each direction, one for messages to other ranks) with events that realise the
plan's order. Changes by the host between steps are `told` before the launch, in the same operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...backends.remote import MESSAGE, Order, RandomState, Remote
from ...engine import get_engine, Var
from ...graph import Node
from ...memplan import MemoryPlan, RUN
from ..plan.lower import Lowered
from ..plan.step import Key
from .arena import Arena
from .graph_segment import GraphSegment, Told
from .program import come_behind, is_collective, Program
from .sheet import Sheet


class GraphProgram(Program):
    """Program on a GPU; see above. `random` counts the random steps; `streams` are for kernels."""

    def __init__(
        self,
        lowered: Lowered,
        plan: MemoryPlan,
        arrays: Mapping[Key, Any],
        arena: Arena,
        random: RandomState | None = None,
        rng_var: Var | None = None,
        states: dict[Node | int, dict[str, Any]] | None = None,
        streams: int = 1,
    ) -> None:
        self.random = random
        self.streams = streams
        assert lowered.backend.remote is not None
        self._device, self._remote = lowered.backend.place, lowered.backend.remote
        self._calls: list[Callable[[], None]] = []
        self._whole: GraphSegment | None = None
        self.order = program_order(plan, streams, self._remote)
        state = None if random is None else random.array
        super().__init__(lowered, plan, arrays, arena, state, rng_var, states=states)

    def _push_whole(self, told: Sequence[Told]) -> None:
        whole = self.whole
        self._push([whole], True, told)
        self.arena.holder, self.arena.tail = None, (whole.done,)

    @property
    def whole(self) -> GraphSegment:
        """Forward, backward and update as one; created on first use."""
        if self._whole is None:
            (self._whole,) = self._linked([0] * len(self._calls), self._calls)
            come_behind(self._whole)
            self._begin(self._whole)
        return self._whole

    @property
    def passes(self) -> list[GraphSegment]:
        """All segments created so far."""
        return [*self.segments, *([self._whole] if self._whole is not None else [])]

    @property
    def why_not(self) -> dict[str, str]:
        """Calls that are outside of graphs, by name, with the reasons."""
        found: dict[str, str] = {}
        for segment in self.passes:
            found |= segment.why_not
        return found

    def describe(self) -> list[str]:
        """Lines about its graphs, for people."""
        lines = [f"{self.graphs} CUDA graphs on {self._device} so far, {self.streams} streams of kernels"]
        lines += [f"  {name!r} stays outside of CUDA graphs: {why}" for name, why in self.why_not.items()]
        return lines

    @property
    def graphs(self) -> int:
        """Number of graphs so far."""
        return sum(segment.graph.graphs for segment in self.passes)

    def _push(self, segments: list[GraphSegment], first: bool, told: Sequence[Told]) -> None:
        push, lane = get_engine().push, self.lowered.backend.lane
        tail = self.arena.tail if first else ()
        for n, s in enumerate(segments):
            held: tuple[tuple[Var, ...], tuple[Var, ...]] = s.held
            reads, writes = held
            if n == 0:
                # `told` is written before the calls read it: an earlier failure of it does not count.
                fresh = {var for t in told for var in t.writes}
                reads = (*(var for var in reads if var not in fresh), *(var for t in told for var in t.reads))
                writes = (*writes, *tail, *(var for t in told for var in t.writes))
            push(s.operation(told if n == 0 else (), (*writes, *reads)), reads, writes, name=s.names[0],
                 device=lane)  # fmt: skip

    def _build(self) -> None:
        super()._build()
        if len(self.segments) > self.num_constant:
            self._begin(self.segments[self.num_constant])

    def _begin(self, segment: GraphSegment) -> None:
        """Make it begin with the next random step, if anything is drawn."""
        if self.random is not None:
            segment.advance, segment.failed = self.random.advance, self.random.forget

    def _groups(self) -> list[int]:
        return passes_of(self.plan, self.lowered.step.num_constant)

    def _order(self, groups: list[int]) -> list[tuple[int, ...]]:
        return realised_order(self.order, groups)

    def _segment(self, number: int, first: int, sheet: Sheet) -> GraphSegment:
        make = partial(self._remote.graph, order=self.order, start=first)
        return GraphSegment(Var(f"graph{number}"), first, sheet, make, self._remote)

    def _linked(self, groups: list[int], calls: list[Callable[[], None]]) -> list[Any]:
        self._calls = calls
        return super()._linked(groups, calls)

    def _copy(self, target: Any, source: Any) -> Callable[[], None]:
        return self._remote.copy_call(target, source)


def make_program(
    lowered: Lowered,
    plan: MemoryPlan,
    arrays: Mapping[Key, Any],
    arena: Arena,
    random: Any,
    rng_var: Var | None,
    states: dict[Node | int, dict[str, Any]],
    streams: int,
) -> Program:
    """The program for where `lowered` is to run. `random` is a RandomState there, or an array."""
    if lowered.backend.remote is not None:
        return GraphProgram(lowered, plan, arrays, arena, random, rng_var, states, streams)
    return Program(lowered, plan, arrays, arena, random, rng_var, states=states)


def program_order(plan: MemoryPlan, streams: int, remote: Remote) -> Order:
    """The streams and events of a plan's steps."""
    schedule, problem = plan.schedule, plan.problem
    kinds = [MESSAGE if is_collective(plan, s) else kind for s, kind in enumerate(schedule.kinds)]
    seconds = []
    for s, (kind, t) in enumerate(zip(schedule.kinds, schedule.task)):
        if kind == RUN:
            seconds.append(problem.tasks[t].seconds)
        else:
            seconds.append(problem.values[schedule.value_of[schedule.inputs[s][0]]].nbytes / _LINK)
    return remote.order(plan.predecessors, kinds, seconds, streams)


_LINK = 50e9  # bytes/s assumed when steps are assigned to streams: PCIe 5


def passes_of(plan: MemoryPlan, num_constant: int = 0) -> list[int]:
    """The pass of each step: constants, forward, backward, as far as they exist."""
    result: list[int] = []
    group = 0
    for s in range(len(plan.schedule.task)):
        if s and s in (num_constant, plan.schedule.num_forward):
            group += 1
        result.append(group)
    return result


def realised_order(order: Order, groups: Sequence[int]) -> list[tuple[int, ...]]:
    """Order that streams and events of graphs guarantee, with groups of steps one after the other."""
    result: list[tuple[int, ...]] = []
    previous: range = range(0)
    for g in dict.fromkeys(groups):
        start, stop = groups.index(g), len(groups) - list(reversed(groups)).index(g)
        # All of the previous group is done: a graph, and the stream it is launched on, end after all of it.
        result += [(*previous, *earlier) for earlier in order.realised(start, stop)]
        previous = range(start, stop)
    return result
