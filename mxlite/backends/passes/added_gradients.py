"""A gradient that goes into a sum is added to it by the product that makes it.

    d_data = of a product, from d_out and weight
    sum = other + d_data                                becomes  _added_gradient(d_out, weight, other)

A kernel of products adds what is there to each number that it writes, so one array less is written and two
less are read. Of both terms the one that is made last is taken: the sum stands behind it as a rule, so that
d_out is kept no longer than before. What is made must have no other reader, and be no output.

Where an elementwise operator beside the sum would take it along, it stays: a chain spares as much. Whether it
is done depends on the graph alone, never on a budget. Run it after gradients in data are nodes of their own
(`split_gradients`), and before chains of elementwise operators are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from ...graph import Entry, Graph, Node, Op
from ...graph.gradient import _grad_add
from ..added_gradient import _added_gradient, AddedGradientAttrs
from ..base import Request
from ..elementwise.rules import RULES
from .rewritten import only_readers, renewed, rewritten


def added_gradients(
    graph: Graph,
    kept: frozenset[Entry],
    num_forward: int,
    makers: Set[type[Op]],
    has_kernel: Callable[[Request], bool],
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with gradients of `makers` that are added where they are made; see `Backend.combine`. O(nodes).

    `makers` are operators of data and weight whose gradient in data reads d_out and weight. `has_kernel` says
    for an `_added_gradient` whether the backend has one.
    """
    reader = only_readers(graph, kept)
    number = {node: i for i, node in enumerate(n for n in graph.nodes if n.op is not None)}
    maker_of: dict[Node, Node] = {}  # by the sum
    taken: set[Node] = set()
    for node in number:
        made = _last_term(node, number)
        if made is None or not _is_maker(made.node, makers) or reader.get(made) is not node:
            continue
        maker = made.node
        together = (number[maker] < num_forward) == (number[node] < num_forward)
        if together and not _is_chained(node, made, reader) and has_kernel(_request(graph, node, made)):
            maker_of[node] = maker
            taken.add(maker)
    if not taken:
        return graph, {}, num_forward
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    moved: dict[Entry, Entry] = {}
    node_of: dict[Node, Node] = {}
    order: list[Node] = []
    for node in graph.nodes:
        if node in taken:
            continue
        if node in maker_of:
            maker = maker_of[node]
            inputs = tuple(moved.get(e, e) for e in _inputs(node, maker))
            new = Node(_added_gradient, _attrs(maker), inputs, node.name, annotations=dict(node.annotations))
        else:
            new = renewed(node, tuple(moved.get(e, e) for e in node.inputs), node_of)
        order.append(new)
        if new is node:
            continue
        node_of[node] = new
        for i in range(node.num_outputs):
            old, now = Entry(node, i), Entry(new, i)
            moved[old] = now
            if old in shapes:
                shapes[now], dtypes[now] = shapes[old], dtypes[old]
    fewer = sum(number[node] < num_forward for node in taken)
    return rewritten(graph, order, moved, node_of, shapes, dtypes), moved, num_forward - fewer


def _last_term(node: Node, number: Mapping[Node, int]) -> Entry | None:
    """Of a sum of two gradients, the one that is made last."""
    if node.op is not _grad_add:
        return None
    return max(node.inputs, key=lambda e: number.get(e.node, -1))


def _is_maker(node: Node, makers: Set[type[Op]]) -> bool:
    """Whether a node makes a gradient in data, and none that reads data."""
    op = None if node.forward is None else node.forward.op
    return (
        op in makers
        and op is not None
        and node.op is op.grad_op
        and {"d_out", "weight"} == set(node.input_names)
    )


def _is_chained(node: Node, made: Entry, reader: Mapping[Entry, Node]) -> bool:
    """Whether an elementwise operator makes the other term, or reads the sum, and nobody else sees it."""
    (other,) = (e for e in node.inputs if e != made)
    behind = reader.get(Entry(node))
    beside = [other.node] if reader.get(other) is node else []
    beside += [behind] if behind is not None else []
    return any(n.op in RULES and n.op is not _grad_add for n in beside)


def _attrs(maker: Node) -> AddedGradientAttrs:
    assert maker.forward is not None and maker.forward.op is not None
    return AddedGradientAttrs(maker.forward.op, maker.attrs)


def _inputs(node: Node, maker: Node) -> tuple[Entry, ...]:
    """What the new node reads in place of a sum and of what makes its last term."""
    named = dict(zip(maker.input_names, maker.inputs))
    (addend,) = (e for e in node.inputs if e.node is not maker)
    return named["d_out"], named["weight"], addend


def _request(graph: Graph, node: Node, made: Entry) -> Request:
    """The question for a kernel for both."""
    entries = _inputs(node, made.node)
    shapes, dtypes = tuple(graph.shapes[e] for e in entries), tuple(graph.dtypes[e] for e in entries)
    shape = graph.shapes[Entry(node)]
    return Request(_added_gradient, _attrs(made.node), shapes, (shape,), dtypes[0], dtypes)
