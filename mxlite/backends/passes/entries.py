"""Entries of a graph: by name, and with the one node that reads them."""

from __future__ import annotations

from ...graph import Entry, Graph, Node


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
