"""A large gradient in the weight of a convolution is made where it is used: inside the update, some filters
at a time.

    d_weight = from d_out, data     update(weight, d_weight, states)      becomes
                                    update(weight, d_out, data, states)

On the same conditions as in `product_updates.py`. A gradient in the bias is made with that in the weight, and
keeps both as they are.
"""

from __future__ import annotations

from ....graph import Entry, Node, Rewriter
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast
from ....ops.nn.normed_convolution import NormedConvolutionWeightGradient
from ...fused.convolution_update import ConvolutionUpdate, ConvolutionUpdateAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import inputs_by_name, request_of
from ..target import Target
from .product_updates import DEEP_LEAST_BYTES, joinable

LEAST_BYTES = DEEP_LEAST_BYTES
"""Of a gradient that is made in bands."""


@graph_pass(Stage.STEP, after=("split_gradients", "normed_loads", "wide_convolutions", "narrow_gradients"))
def convolution_updates(step: Step, target: Target) -> Step:
    """Updates of convolutions' weights that make their gradient. O(inputs)."""
    graph = step.graph
    joined: dict[Node, Node] = {}  # by the node that makes the gradient
    gone: dict[Node, Node] = {}
    for update in joinable(step):
        gradient = update.inputs[1]
        made = gradient.node
        if made in step.forward or gradient not in graph.shapes or graph.nbytes(gradient) < LEAST_BYTES:
            continue
        others = [Entry(made, i) for i in range(made.num_outputs) if Entry(made, i) != gradient]
        if not _is_maker(made) or any(map(step.readers.wants, others)):
            continue
        new = _joined(made, update)
        if target.has_kernel(request_of(graph, ConvolutionUpdate, new.attrs, new.inputs)):
            joined[made] = gone[update] = new
    if not joined:
        return step
    result = Rewriter(graph)
    result.node_of |= gone
    result.order += graph.variables  # weights and states: before where they stood
    result.order += [joined.get(n, n) for n in step.operators if n not in gone]
    return step.became(result.graph())


def _is_maker(node: Node) -> bool:
    """Whether a node makes a gradient in the weight of a convolution, and none in data."""
    if node.op is NormedConvolutionWeightGradient:
        return True
    return node.op is ConvolutionChannelsLast.grad_op and "weight" in node.absent


def _joined(made: Node, update: Node) -> Node:
    assert made.op is not None and update.op is not None
    named = inputs_by_name(made)
    is_normed = made.op is NormedConvolutionWeightGradient
    maker = made.op if is_normed else ConvolutionChannelsLast
    attrs = ConvolutionUpdateAttrs(update.op, update.attrs, maker, made.attrs)
    inputs = made.inputs if is_normed else (named["d_out"], named["data"])
    weight, _, *others = update.inputs
    return Node(ConvolutionUpdate, attrs, (*inputs, weight, *others), update.name)
