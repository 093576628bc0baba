"""Recurrent layers keep their gates in training, and in mixed precision read float32 parameters.

    RNN(data, parameters)                         _rnn_keeping_gates(data, parameters)
    parameters -> cast to 16 bits -> RNN          _rnn_wide(data, parameters)

With their gates the backward pass does not recompute them. The layers compute in float32 in any case, and
would widen a rounded copy of their parameters; the gradient in the parameters, which is accumulated over
stretches of time steps, would be live in both types.
"""

from __future__ import annotations

from ...core.dtype import float32
from ...graph import Entry, Graph, Node, Op
from ...graph.opdef import known_shape
from ...ops.elementwise.cast import Cast
from ...ops.rnn.rnn import RNN
from ...ops.rnn.rnn_gates import RnnKeepingGates
from ...ops.rnn.rnn_wide import RnnWide
from ..rewrite import graph_pass, Stage, Step
from .entries import request_of
from .target import Target


@graph_pass(Stage.FORWARD, anchors=(RNN,))
def recurrent_forms(step: Step, target: Target) -> Step:
    """The step with `_rnn_keeping_gates` for every RNN that has a kernel for it, and `_rnn_wide` for others
    whose parameters are a 16-bit copy. O(nodes).
    """
    found: dict[Node, tuple[type[Op], list[Entry]]] = {}
    for node in step.graph.nodes:
        if node.op is RNN:
            data, parameters, *rest = node.inputs
            wide = [data, _widest(step.graph, parameters), *rest]
            if step.train and _keeps(step.graph, node, wide, target):
                found[node] = RnnKeepingGates, wide
            elif wide[1] != parameters:
                found[node] = RnnWide, wide
    return step.substituted(found, lambda r, node: r.exchange(node, *found[node]), ordered=False)


def _widest(graph: Graph, parameters: Entry) -> Entry:
    """The float32 array that `parameters` are a 16-bit copy of; else `parameters`."""
    node = parameters.node
    if node.op is not Cast or graph.dtypes[parameters].itemsize != 2:
        return parameters
    (source,) = node.inputs
    return source if graph.dtypes[source] == float32 else parameters


def _keeps(graph: Graph, node: Node, inputs: list[Entry], target: Target) -> bool:
    """True if an RNN has gates, and there is a kernel that keeps them."""
    if node.attrs.mode not in ("lstm", "gru") or not known_shape(graph.shapes[node.inputs[0]]):
        return False
    return target.has_kernel(request_of(graph, RnnKeepingGates, node.attrs, inputs))
