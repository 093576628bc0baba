"""Recurrent networks in training keep their gates, so that the backward pass does not recompute them.

In mixed precision they read float32 parameters, see `passes/precision/inline_recurrent_casts.py`.
"""

from __future__ import annotations

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.opdef import known_shape
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import RnnKeepingGates
from ...rewrite import graph_pass, Stage, Step
from ..entries import request_of
from ..precision.inline_recurrent_casts import widest
from ..target import Target


@graph_pass(Stage.FORWARD, anchors=(RNN,))
def keep_gates(step: Step, target: Target) -> Step:
    """The step with `_rnn_keeping_gates` for every RNN that has a kernel for it. O(nodes)."""
    graph = step.graph
    if not step.train:
        return step
    found = [n for n in graph.nodes if n.op is RNN and _keeps(graph, n, target)]

    def add(r: Rewriter, node: Node) -> None:
        r.exchange(node, RnnKeepingGates, _inputs(graph, node))

    return step.substituted(found, add, ordered=False)


def _inputs(graph: Graph, node: Node) -> list[Entry]:
    """The inputs of an RNN, with its parameters before a narrowing cast."""
    data, parameters, *rest = node.inputs
    return [data, widest(graph, parameters), *rest]


def _keeps(graph: Graph, node: Node, target: Target) -> bool:
    """True if an RNN has gates, and there is a kernel that keeps them."""
    if node.attrs.mode not in ("lstm", "gru") or not known_shape(graph.shapes[node.inputs[0]]):
        return False
    return target.has_kernel(request_of(graph, RnnKeepingGates, node.attrs, _inputs(graph, node)))
