"""Inlined casts of gradients: an update reads the 16-bit gradient and widens it in registers.

In mixed precision a gradient of 16 bits is cast to float32 for the update of the float32 weight:

    product -> d_weight, 16 bits -> cast -> d_weight, 32 bits -> update

Both are live while the cast runs, which for the largest weight is often the peak of a step. The update that
reads 16 bits gives the same bits without the second array.
"""

from __future__ import annotations

from dataclasses import replace

from ....core.dtype import float32, is_floating
from ....graph import Node
from ....ops.elementwise.cast import Cast
from ...rewrite import graph_pass, Stage, Step
from ..entries import request_of
from ..target import Target


@graph_pass(
    Stage.STEP,
    after=(
        "chunked_cross_entropy",
        "inline_dense_casts",
        "inline_convolution_casts",
    ),
    anchors=(Cast.grad_op,),
)
def inline_gradient_casts(step: Step, target: Target) -> Step:
    """The step with updates that read gradients before a widening cast. O(nodes).

    A cast with other readers, or in the forward pass, stays.
    """
    graph = step.graph
    changed: dict[Node, Node] = {}
    gone: set[Node] = set()
    for node in graph.effects:
        if getattr(node.op, "form", "") != "fused":
            continue
        grad = node.inputs[1]
        cast = grad.node
        if cast.op is not Cast.grad_op or step.readers.only(grad) is not node or cast in step.forward:
            continue
        (narrow,) = cast.inputs
        dtype = graph.dtypes[narrow]
        is_wider = is_floating(dtype) and dtype.itemsize == 2 and graph.dtypes[grad] == float32
        new = replace(node, inputs=(node.inputs[0], narrow, *node.inputs[2:]))
        assert node.op is not None
        if is_wider and target.has_kernel(request_of(graph, node.op, node.attrs, new.inputs)):
            changed[node] = new
            gone.add(cast)
    if not changed:
        return step
    effects = tuple(changed.get(n, n) for n in graph.effects)
    order = tuple(changed.get(n, n) for n in graph.nodes if n not in gone)
    return step.became(replace(graph, effects=effects, order=order))
