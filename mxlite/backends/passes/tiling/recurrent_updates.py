"""The parameters of recurrent layers are updated from the gates' gradients, which lie where the gates lay.

    d_parameters, d_data = backward(..., gates)      d_gates, d_data = backward(..., gates)
    update(parameters, d_parameters, states)         update(parameters, d_gates, data, ..., states)

See `rnn_update.py`. It needs a step as `dense_updates` does, and layers without dropout between them, whose
inputs would have to be drawn again.
"""

from __future__ import annotations

from ....core.dtype import float32
from ....graph import Graph, Node, Rewriter
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import RnnKeepingGates
from ...fused.rnn_update import GateGradientsAttrs, RnnGateGradients, RnnUpdate, RNNUpdateAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from . import dense_updates
from .fusible_updates import fusible_updates

LEAST_BYTES = dense_updates.LEAST_BYTES
"""Least bytes of a gradient that is worth it."""

_HEADS = ("d_out", "d_state_output", "d_statecell_output")


@graph_pass(Stage.STEP, after=("inline_gradient_casts",), anchors=(RnnKeepingGates.grad_op,))
def recurrent_updates(step: Step, target: Target) -> Step:
    """Updates that make the gradient of recurrent layers' parameters. O(inputs)."""
    graph = step.graph
    found = {u.inputs[1].node: u for u in fusible_updates(step) if _suits(graph, u)}

    def add(made: Rewriter, node: Node) -> None:
        named = dict(zip(node.input_names, made.inputs(node)))
        data = graph.shapes[node.inputs[node.input_names.index("data")]]
        attrs = GateGradientsAttrs(node.attrs, data, tuple(n for n in _HEADS if n in named))
        ins = tuple(named[n] for n in RnnGateGradients.input_names(attrs))
        gradients = made.replace(node, Node(RnnGateGradients, attrs, ins, node.name))
        gates, sums = (output(gradients, n) for n in ("d_gates", "d_biases"))
        count, _, _, width = made.shapes[gates] = made.shapes[named["gates"]]
        made.shapes[sums] = (count, width)
        made.dtypes[gates] = made.dtypes[sums] = float32
        named |= {"d_gates": gates, "d_biases": sums}
        update = found[node]
        weight, _, *others = made.inputs(update)
        assert update.op is not None
        how = RNNUpdateAttrs(update.op, update.attrs, node.attrs)
        makers = tuple(named[n] for n in RnnUpdate.makers if n in named)
        made.replace(update, Node(RnnUpdate, how, (*makers, weight, *others), update.name))

    return step.substituted(found, add, gone=set(found.values()))


def _suits(graph: Graph, update: Node) -> bool:
    gradient = update.inputs[1]
    made = gradient.node
    if made.op is not RnnKeepingGates.grad_op or gradient != output(made, "d_parameters"):
        return False
    a = made.attrs
    if RNN.draws(a, True) or a.use_sequence_length or graph.nbytes(gradient) < LEAST_BYTES:
        return False
    named = made.named_inputs
    return all(graph.dtypes[e] == float32 for e in (named["parameters"], named["gates"], *update.inputs[:2]))
