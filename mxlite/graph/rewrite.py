"""The graph rewriter that all passes which replace nodes share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import RewriteError
from .ir import Entry, Graph, Node
from .opdef import Op


class Rewriter:
    """Builds a graph node by node from one with shapes and dtypes; `of` says where an old entry went.

    A pass walks over `graph.nodes` in order. For each node it calls `keep`, or `replace` with the node that
    does its work now, or adds nodes and says by `put` which entries stand for the old node's outputs. Nodes
    stand in the order in which they were kept, replaced or added; a pass may change `order` as well.
    """

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.shapes = dict(graph.shapes)
        self.dtypes = dict(graph.dtypes)
        self.order: list[Node] = []
        self.moved: dict[Entry, Entry] = {}
        self.node_of: dict[Node, Node] = {}
        self.num_forward: int | None = None

    def walk(self, num_forward: int | None = None) -> Iterator[Node]:
        """The old nodes in their order.

        If the old graph has `num_forward` operators of the forward pass, `self.num_forward` is the number in
        the new one: the length of `order` when the walk is past the last of them.
        """
        seen = 0
        for node in self.old.nodes:
            if node.op is not None and seen == num_forward and self.num_forward is None:
                self.num_forward = sum(n.op is not None for n in self.order)
            yield node
            seen += node.op is not None
        if num_forward is not None and self.num_forward is None:
            self.num_forward = sum(n.op is not None for n in self.order)

    def of(self, entry: Entry) -> Entry:
        """The new entry that stands for an old one."""
        return self.moved.get(entry, entry)

    def inputs(self, node: Node) -> tuple[Entry, ...]:
        """The new entries that stand for an old node's inputs."""
        return self.all_of(node.inputs)

    def all_of(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The new entries that stand for old ones."""
        return tuple(self.moved.get(e, e) for e in entries)

    def put(self, old: Entry, new: Entry) -> None:
        """Let `new` stand for `old` from here on; it takes over shape and type unless it has its own."""
        self.moved[old] = new
        if old in self.shapes and new not in self.shapes:  # an unread entry may have no known shape
            self.shapes[new], self.dtypes[new] = self.shapes[old], self.dtypes[old]

    def add(
        self,
        op: type[Op],
        attrs: Any,
        inputs: Sequence[Entry],
        name: str,
        annotations: Mapping[str, str] | None = None,
    ) -> Node:
        """Add a new node and infer its shapes and dtypes."""
        node = Node(op, attrs, tuple(inputs), name, annotations=dict(annotations or {}))
        self.infer(node)
        self.order.append(node)
        return node

    def exchange(self, old: Node, op: type[Op], inputs: Sequence[Entry]) -> Node:
        """Add a node of another operator in place of `old`, on what stands for `inputs`. Its outputs stand
        for those of `old`, in their order.
        """
        new = self.add(op, old.attrs, self.all_of(inputs), old.name, old.annotations)
        for i in range(min(old.num_outputs, new.num_outputs)):
            self.put(Entry(old, i), Entry(new, i))
        return new

    def infer(self, node: Node) -> None:
        """Infer shapes and dtypes of a new node's outputs."""
        op = node.op
        assert op is not None
        _, shapes = op.infer_shape(node.attrs, *(self.shapes[e] for e in node.inputs))
        _, dtypes = op.infer_type(node.attrs, *(self.dtypes[e] for e in node.inputs))
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            assert dtype is not None, f"{op.op_name}: the type of output {i} does not follow from its inputs"
            self.shapes[Entry(node, i)], self.dtypes[Entry(node, i)] = shape, dtype

    def replace(self, old: Node, new: Node, to: list[Node] | None = None) -> Node:
        """Add `new` in place of `old`: its outputs stand for those of `old` that have the same names.

        It is appended to `to`, which is `order` unless a pass builds several parts of one.
        """
        self.node_of[old] = new
        place = {name: i for i, name in enumerate(new.output_names)}
        for i, name in enumerate(old.output_names):
            if name in place:
                self.put(Entry(old, i), Entry(new, place[name]))
        (self.order if to is None else to).append(new)
        return new

    def renewed(self, node: Node) -> Node:
        """`node` on the entries that stand for its inputs: itself, if these are the old ones.

        A gradient node follows its forward node. The two share random numbers and state, so both must refer
        to the same node. A forward node that has become another operator shares none, and its gradient still
        asks for kernels by the old one's shapes.
        """
        inputs, forward = self.inputs(node), node.forward
        if forward is not None and forward in self.node_of and self.node_of[forward].op is forward.op:
            forward = self.node_of[forward]
        after = self.all_of(node.after)
        if inputs == node.inputs and forward is node.forward and after == node.after:
            return node
        return replace(node, inputs=inputs, forward=forward, after=after)

    def keep(self, node: Node, to: list[Node] | None = None) -> Node:
        """`renewed(node)`, in the place of `node`; `to` is as in `replace`."""
        new = self.renewed(node)
        if new is not node:
            return self.replace(node, new, to)
        (self.order if to is None else to).append(node)
        return node

    def graph(self, ordered: bool = True) -> Graph:
        """The new graph, its outputs standing for the old ones, its nodes in `order`.

        Not `ordered`, which a forward graph may be: its order follows from its outputs.
        """
        outputs = self.all_of(self.old.outputs)
        if not ordered:
            if outputs == self.old.outputs:
                return self.old
            return Graph(outputs, shapes=self.shapes, dtypes=self.dtypes)
        return replace(
            self.old,
            outputs=outputs,
            effects=tuple(self.node_of.get(n, n) for n in self.old.effects),
            order=tuple(self.order),
            shapes=self.shapes,
            dtypes=self.dtypes,
        )


def in_order(graph: Graph, made_by: str) -> Graph:
    """`graph` in an order in which every node comes after all that it reads or waits for. O(inputs).

    A pass that puts a new node in place of one of several old ones may leave a variable after its reader, or
    forget to list one: variables take no time, so they are moved to the front. An operator that is read
    before it is computed is a mistake of the pass `made_by`: RewriteError.
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
