"""Within a small budget, recurrent networks recompute their gates: this variant undoes `recurrent_forms`."""

from __future__ import annotations

from ....graph import Node, Rewriter
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import RnnKeepingGates
from ....ops.rnn.rnn_wide import RnnWide
from ...rewrite import graph_pass, Stage, Step
from ..target import Target


@graph_pass(
    Stage.FORWARD_VARIANT,
    after=("recurrent_forms",),
    anchors=(RnnKeepingGates,),
    instead="gates computed again",
)
def forget_gates(step: Step, target: Target) -> Step:
    """The step with RNN in place of each `_rnn_keeping_gates`. O(nodes)."""
    forgotten = {n for n in step.operators if n.op is RnnKeepingGates}

    def add(r: Rewriter, node: Node) -> None:
        data, parameters = (step.graph.dtypes[e] for e in node.inputs[:2])
        r.exchange(node, RNN if data == parameters else RnnWide, node.inputs)

    return step.substituted(forgotten, add, ordered=False)
