"""Watched results of a program: inner results and gradients by name, kept for a monitor.

A watched result becomes an output of the graph before the backend's passes see it, so it exists as
in the network, whatever nodes are fused; and outside the arena, so it is not overwritten:

    conv1 --> bn1 --> relu1 --> fc1          outputs: fc1, and bn1 while somebody watches "bn1_output"

A gradient belongs to one input of one node. If several nodes read the same value, their gradients would
arrive as a sum; so a point of its own is inserted into that edge, and its gradient is watched:

    conv1 --+--> (bn1_backward_output0) --> bn1       a copy for as long as somebody watches
            +--> relu1
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...graph import Entry, Graph, Node, output_name
from ...graph.attrs import parse_attrs
from ...graph.gradient import carries_gradient
from ...graph.rewrite import Rewriter
from ...ops import find_op
from ..plan.step import Key


@dataclass(frozen=True)
class Watch:
    """Selection of results: those whose names `pattern` matches from their start.

    Names are those of outputs (`fc1_output`), with `inputs` also of each node's inputs (`fc1_data`, before
    it `data` if that is a variable), and `fc1_backward_output1` for the gradient of a node's second
    input, here its weight.
    """

    pattern: str = ".*"
    inputs: bool = False

    def wants(self, name: str) -> bool:
        return re.match(self.pattern, name) is not None


@dataclass(frozen=True)
class Seen:
    """One array that a monitor is shown, by the forward or the backward pass."""

    name: str
    key: Key
    backward: bool = False


@dataclass(frozen=True)
class Watched:
    """A graph prepared to be watched.

    `forward` has the results as further outputs; its first `count` outputs are the network's. `training` is
    the same with points in the edges named in `points`. `shown` are the results.
    """

    forward: Graph
    training: Graph
    count: int
    shown: tuple[Seen, ...] = ()
    points: tuple[str, ...] = ()


def watched(graph: Graph, watch: Watch, names: Sequence[str], wanted: Sequence[Entry]) -> Watched:
    """`graph`, with all shapes and dtypes, for `watch`. O(nodes).

    `names` are those of the nodes that may be watched: not of casts that mixed precision has added.
    `wanted` are the variables with a gradient request.
    """
    count, known = len(graph.outputs), set(names)
    place = {e: i for i, e in reversed(list(enumerate(graph.outputs)))}
    more: list[Entry] = []
    shown: list[Seen] = []

    def show(name: str, entry: Entry) -> None:
        if not watch.wants(name):
            return
        if entry.node.op is None:
            shown.append(Seen(name, ("var", entry.node.name)))
            return
        if entry not in place:
            place[entry] = count + len(more)
            more.append(entry)
        shown.append(Seen(name, ("out", place[entry])))

    nodes = [n for n in graph.nodes if n.op is not None and n.name in known]
    for node in nodes:
        if watch.inputs:
            for key, entry in zip(node.input_names, node.inputs):
                if entry.node.op is None:
                    show(entry.node.name, entry)
                show(f"{node.name}_{_read_as(node, key)}", entry)
        statistics = node.op is not None and node.op.op_name == "BatchNorm"  # mean and 1 / std, as in MXNet
        for i in range(node.num_outputs if statistics else node.num_visible_outputs):
            entry = Entry(node, i)
            show(output_name(entry), entry)
    forward = replace(graph, outputs=(*graph.outputs, *more), order=graph.nodes)
    training, points = _with_points(forward, watch, nodes, wanted)
    return Watched(forward, training, count, tuple(shown), points)


_NAMED = frozenset(
    "Dropout L2Normalization LRN LeakyReLU MakeLoss Pad Pooling SequenceLast SequenceMask SequenceReverse "
    "SliceChannel SwapAxis log_softmax repeat reverse softmax squeeze tile".split()
)


def _read_as(node: Node, key: str) -> str:
    """MXNet's name of an input when it shows it: most unary operators there have none for it."""
    assert node.op is not None
    if node.op.variadic and node.input_names == ("data",):
        return "arg0"
    nameless = node.input_names == ("data",) and node.op.op_name not in _NAMED
    return "input0" if nameless else key


def gradient_name(node: Node, place: int) -> str:
    """MXNet's name of an input's gradient: NODE_backward_output, with a number if there are several."""
    assert node.op is not None
    count = sum(1 for n in node.input_names if n not in node.op.aux)
    return f"{node.name}_backward_output{place if count > 1 else ''}"


def _with_points(
    graph: Graph, watch: Watch, nodes: Sequence[Node], wanted: Sequence[Entry]
) -> tuple[Graph, tuple[str, ...]]:
    """`graph` with a point in each edge whose gradient is watched, and their names, last node first."""
    flowing = carries_gradient(graph, wanted) if wanted else set()
    edges: dict[tuple[Node, int], str] = {}
    for node in reversed(nodes):
        op = node.op
        assert op is not None
        made = op.grad_op.output_names(node.attrs) if op.grad_op is not None else ()
        for i, (key, entry) in enumerate(zip(node.input_names, node.inputs)):
            name = gradient_name(node, i)
            if entry in flowing and f"d_{key}" in made and watch.wants(name):
                edges[node, i] = name
    if not edges or any(n.forward is not None for n in graph.nodes):
        return graph, ()
    reshape = find_op("Reshape")
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.op is None:
            continue
        kept = rewriter.keep(node)
        inputs = list(kept.inputs)
        for i, entry in enumerate(kept.inputs):
            if (node, i) in edges:
                shape = parse_attrs(reshape, {"shape": str(graph.shapes[node.inputs[i]])})
                inputs[i] = Entry(rewriter.add(reshape, shape, (entry,), edges[node, i]))
        if tuple(inputs) != kept.inputs:
            new = replace(kept, inputs=tuple(inputs))
            for j in range(node.num_outputs):
                old = Entry(node, j)
                rewriter.shapes[Entry(new, j)], rewriter.dtypes[Entry(new, j)] = (
                    graph.shapes[old],
                    graph.dtypes[old],
                )
                rewriter.put(old, Entry(new, j))
    return rewriter.graph(ordered=False), tuple(edges.values())
