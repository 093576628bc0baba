"""Inlined casts of losses: a loss reads 16-bit data and widens them in registers.

In mixed precision a loss is float32, and its data are cast for it:

    product, 16 bits -> cast -> 32 bits -> SoftmaxOutput

In a language model these numbers, one for each word and position, are the largest array of a step, and there
are three such arrays: both sides of the cast, and the probabilities. A loss that widens in registers gives
the same bits without the array in the middle, and in the backward pass without its gradient.
"""

from __future__ import annotations

from dataclasses import replace

from ....core.dtype import float32, is_floating
from ....graph import Entry, Node, Op, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.loss.cross_entropy import cross_entropy, softmax_cross_entropy
from ....ops.loss.loss import SoftmaxOutput
from ....ops.loss.softmax import log_softmax, softmax, softmin
from ....ops.loss.wide_losses import WideCrossEntropy, WideSoftmaxCrossEntropy, WideSoftmaxOutput
from ...rewrite import graph_pass, Stage, Step
from ..target import Target

_WIDE: dict[type[Op], type[Op]] = {
    SoftmaxOutput: WideSoftmaxOutput,
    softmax_cross_entropy: WideSoftmaxCrossEntropy,
    cross_entropy: WideCrossEntropy,
}
_SOFTMAX = (softmax, softmin, log_softmax)
"""Operators with an attribute for the type of their result."""


@graph_pass(Stage.FORWARD, anchors=(Cast,))
def inline_loss_casts(step: Step, target: Target) -> Step:
    """The step with losses and softmaxes that read the input of a widening cast. O(nodes).

    Casts with other readers stay, and so do nodes whose gradients are in the graph already.
    """
    graph = step.graph
    differentiated = {n.forward for n in graph.nodes if n.forward is not None}
    found: dict[Node, Node] = {}
    for node in graph.nodes:
        takes = node.op in _WIDE or (node.op in _SOFTMAX and node.attrs.dtype is None)
        if takes and node.forward is None and node not in differentiated:
            cast = node.inputs[0].node
            is_private = step.readers.only(node.inputs[0]) is node
            if cast.op is Cast and is_private and cast not in differentiated:
                dtype = graph.dtypes[cast.inputs[0]]
                if is_floating(dtype) and dtype.itemsize == 2 and graph.dtypes[node.inputs[0]] == float32:
                    found[node] = cast

    def add(r: Rewriter, node: Node) -> None:
        op = node.op
        assert op is not None
        attrs = replace(node.attrs, dtype="float32") if op in _SOFTMAX else node.attrs
        ins = r.all_of((found[node].inputs[0], *node.inputs[1:]))
        r.put(Entry(node), Entry(r.add(_WIDE.get(op, op), attrs, ins, node.name, node.annotations)))

    return step.substituted(found, add, gone=set(found.values()))
