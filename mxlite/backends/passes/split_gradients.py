"""One node for each gradient of a convolution or matrix product, and one factor for that of a plain product.

The gradient in the weight reads data, the gradient in data reads the weight. As one node they need everything
at once; as two nodes, data is dead before the gradient in data, which is as large, is computed:

    backward(d_out, data, weight) -> d_data, d_weight, d_bias

    backward(d_out, data) -> d_weight, d_bias          then  backward(d_out, weight) -> d_data

If the weight is larger than data, the order is the other way round: an update of the weight has to wait for
the gradient in data, and should not keep the gradient in the weight waiting with it. A product of two arrays
has its first factor in place of data, and the second in place of the weight.

If only one of the two is wanted, as in the first layer, it reads only its own factor: no 16-bit copy of the
weight is computed for a gradient that does not read it.

So it is with elementwise products and quotients: if only one of the two gradients is wanted, as where a mask
or weights of a graph's edges are given, it is a step on fewer arrays, and what it does not read is not kept:

    _backward_broadcast_mul(d_out, lhs, rhs) -> d_lhs     becomes     broadcast_mul(d_out, rhs) -> d_lhs
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ...graph import Entry, Graph, Node, Rewriter
from ...graph.derivative import Writer
from ...ops import find_op
from ..elementwise.formula import is_elementwise
from ..rewrite import graph_pass, Stage, Step
from .target import Target


@graph_pass(Stage.STEP, after=("chunked_cross_entropy",))
def split_gradients(step: Step, target: Target) -> Step:
    """The step with a node for each gradient of the operators `target.apart`. O(nodes)."""
    graph, read = step.graph, step.read
    made = Rewriter(graph)
    for node in made.walk(step.num_forward):
        inputs = made.inputs(node)
        if node.forward is not None and node.forward.op in target.apart:
            data, weight = node.forward.op.inputs[:2]
            place = node.output_names.index(f"d_{data}")
            by_data = Entry(node, place)
            others = [e for e in node.outputs if e != by_data]
            in_others = any(e in read for e in others)
            if in_others != (by_data in read):  # one gradient: it needs one factor
                made.replace(node, _without(node, inputs, weight if in_others else data, node.name))
                continue
            if in_others:
                first = _without(node, inputs, weight, node.name)
                second = _without(node, inputs, data, f"{node.name}_{data}")
                made.replace(node, first)
                read_by = node.named_inputs
                large_weight = graph.nbytes(read_by[weight]) > graph.nbytes(read_by[data])
                made.order.insert(len(made.order) - large_weight, second)
                made.put(by_data, Entry(second, place))
                continue
        elif (alone := _alone(graph, node, read)) is not None:
            wanted, factor = alone
            assert factor.op is not None
            new = made.add(factor.op, factor.attrs, made.all_of(factor.inputs), node.name, node.annotations)
            made.put(wanted, Entry(new))
            continue
        made.keep(node)
    return step.rewritten(made) if made.moved else step


def _alone(graph: Graph, node: Node, read: Set[Entry]) -> tuple[Entry, Node] | None:
    """The only gradient of an elementwise operator that is read, and the one step that computes it from fewer
    arrays; None if it takes as many, or more steps.
    """
    forward = node.forward
    if forward is None or forward.op is None or not is_elementwise(forward.op):
        return None
    wanted = [e for e in node.outputs if e in read]
    if len(wanted) != 1 or node.num_outputs == 1 or forward.op.derivative is None:
        return None
    given, (gradient,) = node.named_inputs, wanted
    head = given.get(f"d_{forward.output_names[0]}")
    if head is None or graph.shapes[head] != graph.shapes[gradient]:
        return None
    writer = Writer(find_op, node.name)
    ins = {n: given.get(n, e) for n, e in zip(forward.input_names, forward.inputs)}
    outs = {n: given.get(n, Entry(forward, i)) for i, n in enumerate(forward.output_names)}
    written = forward.op.derivative(writer, forward.attrs, ins, outs, {forward.output_names[0]: head})
    result = written[node.output_names[gradient.index].removeprefix("d_")]
    if result.node.op is find_op("_sum_like"):  # nothing is summed: the shapes are equal
        result = result.node.inputs[0]
    reads = set(result.node.inputs)
    is_step = result.node in writer.made and not any(e.node in writer.made for e in reads)
    types = {graph.dtypes[e] for e in (gradient, *reads)} if is_step else set()
    return (gradient, result.node) if reads < set(node.inputs) and len(types) == 1 else None


def _without(node: Node, inputs: tuple[Entry, ...], name: str, new_name: str) -> Node:
    """`node` without the input `name`."""
    keep = [(n, e) for n, e in zip(node.input_names, inputs) if n != name]
    return replace(
        node, inputs=tuple(e for _, e in keep), absent=node.absent | {name}, name=new_name, annotations={}
    )
