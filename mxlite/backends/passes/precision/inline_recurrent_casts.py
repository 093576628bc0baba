"""Inlined casts of recurrent layers: in mixed precision they read their float32 parameters.

    parameters -> cast to 16 bits -> RNN              parameters -> _rnn_wide

They compute in float32 in any case, and would widen the rounded copy; the gradient in the parameters, which
is accumulated over stretches of time steps, would be live in both types.
"""

from __future__ import annotations

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_wide import RnnWide
from ...rewrite import graph_pass, Stage, Step
from ..target import Target


@graph_pass(Stage.FORWARD, after=("keep_gates",), anchors=(RNN,))
def inline_recurrent_casts(step: Step, target: Target) -> Step:
    """The step with `_rnn_wide` for every RNN whose parameters are a 16-bit copy. O(nodes)."""
    graph = step.graph
    found = {n: e for n in graph.nodes if n.op is RNN and (e := widest(graph, n.inputs[1])) != n.inputs[1]}

    def add(r: Rewriter, node: Node) -> None:
        data, _, *rest = node.inputs
        r.exchange(node, RnnWide, (data, found[node], *rest))

    return step.substituted(found, add, ordered=False)


def widest(graph: Graph, parameters: Entry) -> Entry:
    """The float32 array that `parameters` are a 16-bit copy of; else `parameters`."""
    node: Node = parameters.node
    if node.op is not Cast or graph.dtypes[parameters].itemsize != 2:
        return parameters
    (source,) = node.inputs
    return source if graph.dtypes[source] == float32 else parameters
