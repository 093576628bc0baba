"""A graph whose nodes a pass has replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...graph import Entry, Graph, Node, Shape


def output(node: Node, name: str) -> Entry:
    """The output of that name."""
    return Entry(node, node.output_names.index(name))


def only_readers(graph: Graph, kept: frozenset[Entry]) -> dict[Entry, Node]:
    """The reader of every entry that is read once, and is neither kept nor an output. O(inputs)."""
    once: dict[Entry, Node] = {}
    more = set(kept) | set(graph.outputs)
    for node in graph.nodes:
        for e in node.inputs:
            if e in once or e in more:
                more.add(e)
            once[e] = node
    return {e: n for e, n in once.items() if e not in more}


def renewed(node: Node, inputs: tuple[Entry, ...], node_of: Mapping[Node, Node]) -> Node:
    """`node` with other inputs; a gradient goes with what its forward node has become.

    The two share random numbers and state, so both must mean the same node. A forward node that has become
    another operator shares none, and its gradient still asks for kernels by the old one's shapes.
    """
    forward = node.forward
    if forward is not None and forward in node_of and node_of[forward].op is forward.op:
        forward = node_of[forward]
    if inputs == node.inputs and forward is node.forward:
        return node
    return replace(node, inputs=inputs, forward=forward)


def rewritten(
    graph: Graph,
    order: Sequence[Node],
    moved: Mapping[Entry, Entry],
    node_of: Mapping[Node, Node],
    shapes: dict[Entry, Shape],
    dtypes: dict[Entry, Any],
) -> Graph:
    """`graph` with the nodes of `order`: `moved` says what its entries have become, `node_of` its nodes."""
    return replace(
        graph,
        outputs=tuple(moved.get(e, e) for e in graph.outputs),
        effects=tuple(node_of.get(n, n) for n in graph.effects),
        order=tuple(order),
        shapes=shapes,
        dtypes=dtypes,
    )
