"""One node for each gradient of a convolution or matrix product.

The gradient in the weight reads data, the gradient in data reads the weight. As one node they need everything
at once; as two nodes, data is dead before the gradient in data, which is as large, is computed:

    backward(d_out, data, weight) -> d_data, d_weight, d_bias

    backward(d_out, data) -> d_weight, d_bias          then  backward(d_out, weight) -> d_data

If the weight is larger than data, the order is the other way round: an update of the weight has to wait for
the gradient in data, and should not keep the gradient in the weight waiting with it.

If only one of the two is wanted, as in the first layer, it reads only its own factor: no 16-bit copy of the
weight is computed for a gradient that does not read it.
"""

from __future__ import annotations

from dataclasses import replace

from ...graph import Entry, Node, Rewriter
from ..rewrite import graph_pass, Stage, Step
from .target import Target


@graph_pass(Stage.STEP, after=("chunked_cross_entropy", "cross_entropy_updates"))
def split_gradients(step: Step, target: Target) -> Step:
    """The step with a node for each gradient of the operators `target.apart`. O(nodes)."""
    graph, read = step.graph, step.read
    made = Rewriter(graph)
    for node in made.walk(step.num_forward):
        inputs = made.inputs(node)
        if node.forward is not None and node.forward.op in target.apart:
            place = node.output_names.index("d_data")
            by_data = Entry(node, place)
            others = [Entry(node, i) for i in range(node.num_outputs) if i != place]
            in_others = any(e in read for e in others)
            if in_others != (by_data in read):  # one gradient: it needs one factor
                made.replace(node, _without(node, inputs, "weight" if in_others else "data", node.name))
                continue
            if in_others:
                first = _without(node, inputs, "weight", node.name)
                second = _without(node, inputs, "data", f"{node.name}_data")
                made.replace(node, first)
                read_by = node.named_inputs
                large_weight = graph.nbytes(read_by["weight"]) > graph.nbytes(read_by["data"])
                made.order.insert(len(made.order) - large_weight, second)
                made.put(by_data, Entry(second, place))
                continue
        made.keep(node)
    return step.rewritten(made) if made.moved else step


def _without(node: Node, inputs: tuple[Entry, ...], name: str, new_name: str) -> Node:
    """`node` without the input `name`."""
    keep = [(n, e) for n, e in zip(node.input_names, inputs) if n != name]
    return replace(
        node, inputs=tuple(e for _, e in keep), absent=node.absent | {name}, name=new_name, annotations={}
    )
