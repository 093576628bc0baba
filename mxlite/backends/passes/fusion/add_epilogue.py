"""Epilogue fusion of a norm and its rectifier with the sum that follows them.

    BatchNorm -> leaky rectifier -> + addend          becomes  _norm_act(..., addend), plus="behind"

The array between them is neither written nor read: it must have no other reader, and be no output. The
backward pass does not change, since a sum passes its gradient on, and the gradient of the norm recomputes
where the rectifier was positive. So this pass runs on a graph with gradients. The new node takes the place of
the sum.
"""

from __future__ import annotations

from dataclasses import replace

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.norm.norm_act import NormAct, NormActAttrs
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..entries import request_of
from ..target import Target
from .norm_act import agree, is_sum


@graph_pass(Stage.STEP, anchors=(NormAct,))
def add_epilogue(step: Step, target: Target) -> Step:
    """The step with norms that add. O(nodes). If both addends are norms, the first is fused."""
    graph = step.graph
    sum_of: dict[Node, Node] = {}
    norm_of: dict[Node, Node] = {}
    for node in graph.nodes:
        end = _sum_behind(step, node)
        if end is not None and end not in norm_of and target.has_kernel(_request(graph, node, end)):
            sum_of[node], norm_of[end] = end, node

    def add(made: Rewriter, node: Node) -> None:
        norm = norm_of[node]
        inputs = made.all_of((*norm.inputs, _addend(norm, node)))
        new = Node(NormAct, _attrs(norm), inputs, node.name, annotations=dict(node.annotations))
        made.node_of |= {norm: new, node: new}
        made.order.append(new)
        was = [Entry(node), *(Entry(norm, i) for i in range(1, norm.num_outputs))]
        for i, old in enumerate(was):
            made.put(old, Entry(new, i))

    return step.substituted(norm_of, add, gone=sum_of)


def _sum_behind(step: Step, node: Node) -> Node | None:
    """The sum that may be fused into `node`, a norm with a rectifier."""
    if node.op is not NormAct or node.attrs.plus or node.absent:
        return None
    graph, made = step.graph, Entry(node)
    end = step.readers.only(made)
    if end is None or not is_sum(end) or not agree(node, end):
        return None
    # broadcast_add may broadcast either addend, which `_norm_act` does not.
    addend = _addend(node, end)
    alike = graph.shapes[addend] == graph.shapes[made] and graph.dtypes[addend] == graph.dtypes[made]
    return end if alike else None


def _addend(norm: Node, end: Node) -> Entry:
    (addend,) = (e for e in end.inputs if e != Entry(norm))
    return addend


def _attrs(norm: Node) -> NormActAttrs:
    return replace(norm.attrs, plus="behind")


def _request(graph: Graph, norm: Node, end: Node) -> Request:
    """The request for a kernel of the norm with the sum."""
    made = tuple(graph.shapes[Entry(norm, i)] for i in range(norm.num_outputs))
    return request_of(graph, NormAct, _attrs(norm), (*norm.inputs, _addend(norm, end)), made)
