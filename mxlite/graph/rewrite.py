"""Rewriting a forward graph: what passes that replace nodes by better ones have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

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
