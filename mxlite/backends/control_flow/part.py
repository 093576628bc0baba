"""A part: a graph planned once, whose calls can be linked to arrays any number of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any

from ...core import config
from ...graph import Entry, Graph, Node
from ...memplan import check, Device, make_plan, Problem, reorder
from ...ops.elementwise.unary import Copy
from ...ops.random.philox import RandomStream
from ...ops.scratch import Piece
from ..base import Backend
from ..call import bind_call
from ..lower import Key, lower_graph

Run = Callable[[], None]


class Part:
    """A graph with one fixed array for each variable and each output of an operator.

    `made` are the outputs that need an array, `nbytes` the arena.
    """

    def __init__(
        self, backend: Backend, graph: Graph, inputs: Sequence[Node], streams: Mapping[Node, int]
    ) -> None:
        self.backend = backend
        self.graph = graph
        self.inputs: dict[Key, Entry] = {("in", i): Entry(n) for i, n in enumerate(inputs)}
        made = dict.fromkeys(e for e in graph.outputs if e.node.op is not None)
        self.made: dict[Key, Entry] = {("out", i): e for i, e in enumerate(made)}
        storage = {e: key for key, e in (*self.inputs.items(), *self.made.items())}
        lowered = lower_graph(graph, storage, backend, streams)
        problem = Problem(lowered.tasks, lowered.values, len(lowered.tasks))
        self.lowered = lowered.in_order(reorder(problem))
        tasks = self.lowered.tasks
        self.plan = make_plan(Problem(tasks, self.lowered.values, len(tasks)))
        if config.check_plan():
            check(self.plan)
        self.nbytes = self.plan.arena_bytes

    def seconds(self, device: Device) -> float:
        """Modelled time of all calls on `device`."""
        return fsum(call.seconds(device) for call in self.lowered.calls)

    def pieces(self) -> list[Piece]:
        """The arrays of `made`."""
        return [(self.graph.shapes[e], self.graph.dtypes[e]) for e in self.made.values()]

    def link(
        self, inputs: Sequence[Any], made: Sequence[Any], arena: Any, rng_state: Any, train: bool
    ) -> tuple[list[Run], list[Any]]:
        """The calls on these arrays, and the array of each output of the graph."""
        lowered, plan, schedule = self.lowered, self.plan, self.plan.schedule
        fixed: dict[Key, Any] = dict(zip((*self.inputs, *self.made), (*inputs, *made), strict=True))
        views: list[Any] = []
        for i, v in enumerate(schedule.value_of):
            where, b = lowered.key[v], plan.liveness.range_of[i]
            if where is None and b >= 0:
                low = plan.offsets[b]
                flat = arena[low : low + lowered.values[v].nbytes]
                views.append(flat.view(lowered.dtype[v]).reshape(lowered.shape[v]))
            else:
                views.append(None if where is None else fixed[where])
        calls = []
        own: dict[Node, dict[str, Any]] = {}  # shared by a node and its gradient
        for s, t in enumerate(schedule.task):
            call, task = lowered.calls[t], lowered.tasks[t]
            ins = {v: views[i] for v, i in zip(task.inputs, schedule.inputs[s])}
            outs = {v: views[o] for v, o in zip(task.outputs, schedule.outputs[s]) if o >= 0}
            low = plan.offsets[b] if (b := plan.liveness.workspace_of.get(s, -1)) >= 0 else 0
            has_stream = call.stream >= 0 and rng_state is not None
            calls.append(
                bind_call(
                    call.kernel,
                    self.backend.xp,
                    call.node.op,  # type: ignore[arg-type]
                    call.node.attrs,
                    [ins.get(v) for v in call.inputs],
                    [outs.get(v) for v in call.outputs],
                    work=arena[low : low + task.workspace],
                    rng=RandomStream(rng_state, call.stream) if has_stream else None,
                    train=train,
                    shapes=call.shapes,
                    state=own.setdefault(call.node.forward or call.node, {}),
                )
            )
        key_of = {e: key for key, e in (*self.inputs.items(), *self.made.items())}
        return calls, [fixed[key_of[e]] for e in self.graph.outputs]


def apart(graph: Graph, outputs: tuple[Entry, ...], states: Sequence[Node]) -> Graph:
    """`graph` with these outputs; an output that is an unchanged state (or its gradient) becomes a copy.

    Otherwise states that are exchanged could not be written back one after the other.
    """
    shapes, dtypes, held = dict(graph.shapes), dict(graph.dtypes), set(states)
    order, result = list(graph.nodes), []
    for e in outputs:
        if e.node in held:
            copy = Entry(Node(Copy, Copy.Attrs(), (e,), f"{e.node.name}_copy"))
            shapes[copy], dtypes[copy] = shapes[e], dtypes[e]
            order.append(copy.node)
            e = copy
        result.append(e)
    reached = set(Graph(tuple(result)).nodes)
    return Graph(tuple(result), order=tuple(n for n in order if n in reached), shapes=shapes, dtypes=dtypes)
