"""A norm with its rectifier takes the sum behind them along.

    BatchNorm -> leaky rectifier -> + addend          becomes  _norm_act_sum(..., addend)

What lies between is neither written nor read again: it must have no other reader, and be no output. Backwards
nothing changes, since the gradient of a sum is what arrives, and that of the norm computes again what the
rectifier let through. So this comes after gradients are there. The new node stands where the sum stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...graph import Entry, Graph, Node, Rewriter
from ...ops.norm.norm_act import _norm_act
from ...ops.norm.norm_act_sum import _norm_act_sum
from ..base import Request
from .entries import only_readers
from .norm_act import agree, is_sum


def norm_sums(
    graph: Graph, kept: frozenset[Entry], num_forward: int, has_kernel: Callable[[Request], bool]
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with norms that add; see `Backend.combine`. O(nodes).

    `has_kernel` says for a `_norm_act_sum` whether the backend has one. Of two norms that are added the first
    takes the other.
    """
    reader = only_readers(graph, kept)
    sum_of: dict[Node, Node] = {}
    norm_of: dict[Node, Node] = {}
    for node in graph.nodes:
        end = _sum_behind(graph, reader, node)
        if end is not None and end not in norm_of and has_kernel(_request(graph, node, end)):
            sum_of[node], norm_of[end] = end, node
    if not norm_of:
        return graph, {}, num_forward
    made = Rewriter(graph)
    seen = fewer = 0  # operators so far, and those of the forward pass that are gone
    for node in graph.nodes:
        seen += node.op is not None
        if node in sum_of:
            fewer += seen <= num_forward
            continue
        if node in norm_of:
            norm = norm_of[node]
            inputs = made.all_of((*norm.inputs, _addend(norm, node)))
            new = Node(_norm_act_sum, norm.attrs, inputs, node.name, annotations=dict(node.annotations))
            made.node_of |= {norm: new, node: new}
            made.order.append(new)
            was = [Entry(node), *(Entry(norm, i) for i in range(1, norm.num_outputs))]
            for i, old in enumerate(was):
                made.put(old, Entry(new, i))
        else:
            made.keep(node)
    return made.graph(), made.moved, num_forward - fewer


def _sum_behind(graph: Graph, reader: Mapping[Entry, Node], node: Node) -> Node | None:
    """The sum that `node`, a norm with a rectifier, may take along."""
    if node.op is not _norm_act or node.attrs.add or node.absent:
        return None
    made = Entry(node)
    end = reader.get(made)
    if end is None or not is_sum(end) or not agree(node, end):
        return None
    # broadcast_add stretches; a norm that is stretched is another thing.
    addend = _addend(node, end)
    alike = graph.shapes[addend] == graph.shapes[made] and graph.dtypes[addend] == graph.dtypes[made]
    return end if alike else None


def _addend(norm: Node, end: Node) -> Entry:
    (addend,) = (e for e in end.inputs if e != Entry(norm))
    return addend


def _request(graph: Graph, norm: Node, end: Node) -> Request:
    """The question for a kernel for both."""
    entries = (*norm.inputs, _addend(norm, end))
    shapes, dtypes = tuple(graph.shapes[e] for e in entries), tuple(graph.dtypes[e] for e in entries)
    made = tuple(graph.shapes[Entry(norm, i)] for i in range(norm.num_outputs))
    return Request(_norm_act_sum, norm.attrs, shapes, made, dtypes[0], dtypes)
