"""Rewriting a forward graph: what passes that replace nodes by better ones have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import RewriteError
from .ir import Entry, Graph, Node
from .opdef import Op


class Rewriter:
    """Builds a graph node by node from one with all shapes and dtypes; `of` says where an old entry went.

    A pass walks over `graph.nodes` in order and, for each node, either calls `keep`, or adds nodes and says
    by `put` which entries stand for the old node's outputs.
    """

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.shapes = dict(graph.shapes)
        self.dtypes = dict(graph.dtypes)
        self._of: dict[Entry, Entry] = {}

    def of(self, entry: Entry) -> Entry:
        """The entry that stands for an old one."""
        return self._of.get(entry, entry)

    def put(self, old: Entry, new: Entry) -> None:
        """From here on `new` stands for `old`."""
        self._of[old] = new

    def add(
        self,
        op: type[Op],
        attrs: Any,
        inputs: Sequence[Entry],
        name: str,
        annotations: Mapping[str, str] | None = None,
    ) -> Node:
        """A new node, its shapes and dtypes inferred."""
        node = Node(op, attrs, tuple(inputs), name, annotations=dict(annotations or {}))
        _, shapes = op.infer_shape(attrs, *(self.shapes[e] for e in inputs))
        _, dtypes = op.infer_type(attrs, *(self.dtypes[e] for e in inputs))
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            assert dtype is not None, f"{op.op_name}: the type of output {i} does not follow from its inputs"
            self.shapes[Entry(node, i)], self.dtypes[Entry(node, i)] = shape, dtype
        return node

    def keep(self, node: Node) -> Node:
        """`node` on the entries that stand for its inputs: itself, where these are the old ones."""
        inputs = tuple(self.of(e) for e in node.inputs)
        if inputs == node.inputs:
            return node
        new = replace(node, inputs=inputs)
        for i in range(node.num_outputs):
            old, entry = Entry(node, i), Entry(new, i)
            self.shapes[entry], self.dtypes[entry] = self.shapes[old], self.dtypes[old]
            self.put(old, entry)
        return new

    def graph(self) -> Graph:
        """The new graph, its outputs standing for the old ones in their order."""
        outputs = tuple(self.of(e) for e in self.old.outputs)
        if outputs == self.old.outputs:
            return self.old
        return Graph(outputs, shapes=self.shapes, dtypes=self.dtypes)


def in_order(graph: Graph, made_by: str) -> Graph:
    """`graph` in an order in which every node stands behind all that it reads or waits for. O(inputs).

    A pass that puts a new node where one of several old ones was may leave a variable behind its reader, or
    forget to list one: variables take no time, so they are put in front. An operator that is read before it
    is made is a mistake of the pass `made_by`: RewriteError.
    """
    if graph.order is None:
        return graph  # follows from the inputs
    seen: set[Node] = set()
    early: dict[Node, None] = {}
    for node in graph.order:
        for e in (*node.inputs, *node.after):
            if e.node in seen or e.node in early:
                continue
            if e.node.op is not None:
                raise RewriteError(
                    f"{node.name!r} reads {e.node.name!r}, which comes behind it or is missing, in the graph "
                    f"made by {made_by}. This is a bug in mxlite; please report it."
                )
            early[e.node] = None
        seen.add(node)
    listed = {e.node for e in graph.outputs} | set(graph.effects)
    if missing := listed - seen - early.keys():
        raise RewriteError(
            f"{sorted(n.name for n in missing)[:8]} are asked for, but not in the graph made by {made_by}. "
            f"This is a bug in mxlite; please report it."
        )
    if not early:
        return graph
    return replace(graph, order=(*early, *(n for n in graph.order if n not in early)))
