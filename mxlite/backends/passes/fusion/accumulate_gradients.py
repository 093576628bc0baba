"""Gradient accumulation in matrix products (beta = 1): the product adds its result to the sum of gradients.

    d_data = of a product, from d_out and weight
    sum = other + d_data                                becomes  _accumulated_gradient(d_out, weight, other)

A kernel of products adds the other addend to each number that it writes, so that one array less is written
and two less are read. The same holds for the gradient in a weight that many time steps share, computed from
d_out and data, and for a product of an array with itself, whose two gradients are added. The product that
runs last is fused: the sum usually follows it, so that d_out is live no longer than before. Its gradient must
have no other reader, and be no output.

A sum that can be fused with an elementwise operator beside it stays, since a chain saves as much. The choice
depends on the graph alone, never on a budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from ....graph import Entry, Graph, Node, Op, Rewriter
from ....graph.gradient import GradAdd
from ....ops.elementwise.cast import Cast
from ...base import Request
from ...elementwise.formula import is_elementwise
from ...fused.accumulated_gradient import AccumulatedGradient, AccumulatedGradientAttrs
from ...rewrite import graph_pass, Readers, Stage, Step
from ..entries import output, request_of
from ..target import Target

_APART: tuple[type[Op] | None, ...] = (GradAdd, Cast.grad_op)
"""Neighbours with which a sum forms no chain: other sums accumulate too, and updates may read 16 bits."""


@graph_pass(Stage.STEP, after=("split_gradients", "epilogue", "sample_tiles"), anchors=(GradAdd,))
def accumulate_gradients(step: Step, target: Target) -> Step:
    """The step in which gradients of the operators `target.apart` accumulate. O(nodes)."""
    number = {node: i for i, node in enumerate(step.operators)}
    sum_of: dict[Node, tuple[Node, Entry]] = {}  # product -> the sum, and its addend from this product
    for node in number:
        made = _last_term(node, number)
        if made is None or not _is_maker(made, target.apart) or step.readers.only(made) is not node:
            continue
        maker = made.node
        together = (maker in step.forward) == (node in step.forward)
        if maker in sum_of or not together or _is_chained(node, made, step.readers):
            continue
        if target.has_kernel(_request(step.graph, node, made)):
            sum_of[maker] = node, made

    def add(result: Rewriter, node: Node) -> None:
        total, made = sum_of[node]
        attrs = _attrs(made)
        inputs = result.all_of(_inputs(total, made))
        new = Node(AccumulatedGradient, attrs, inputs, total.name, annotations=dict(total.annotations))
        result.put(Entry(total), Entry(new))
        if attrs.has_bias:
            result.put(output(node, "d_bias"), output(new, "d_bias"))
        result.node_of[total] = new
        result.order.append(new)

    return step.substituted(sum_of, add, gone={node for node, _ in sum_of.values()})


def _last_term(node: Node, number: Mapping[Node, int]) -> Entry | None:
    """The addend of a sum of two gradients that is computed last; None for any other node."""
    if node.op is not GradAdd:
        return None
    return max(node.inputs, key=lambda e: number.get(e.node, -1))


def _is_maker(made: Entry, makers: Set[type[Op]]) -> bool:
    """True if a node of `makers` computes this gradient from d_out and the other factor, and no other one."""
    node = made.node
    op = None if node.forward is None else node.forward.op
    if op not in makers or op is None or node.op is not op.grad_op:
        return False
    a = _attrs(made)
    return a.of in op.inputs[:2] and set(node.input_names) == {"d_out", a.factor}


def _is_chained(node: Node, made: Entry, readers: Readers) -> bool:
    """True if an elementwise operator can be fused with the sum: its other addend's, or its only reader."""
    (other,) = (e for e in node.inputs if e != made)
    behind = readers.only(Entry(node))
    beside = [other.node] if readers.only(other) is node else []
    beside += [behind] if behind is not None else []
    return any(is_elementwise(n.op) and n.op not in _APART for n in beside)


def _attrs(made: Entry) -> AccumulatedGradientAttrs:
    forward, name = made.node.forward, made.node.output_names[made.index]
    assert forward is not None and forward.op is not None
    return AccumulatedGradientAttrs(forward.op, made.node.attrs, name.removeprefix("d_"))


def _inputs(node: Node, made: Entry) -> tuple[Entry, ...]:
    """The inputs of the node that replaces a sum and the product of its last addend."""
    named = made.node.named_inputs
    (addend,) = (e for e in node.inputs if e != made)
    return named["d_out"], named[_attrs(made).factor], addend


def _request(graph: Graph, node: Node, made: Entry) -> Request:
    """The request for a kernel of the product with the sum."""
    entries, attrs = _inputs(node, made), _attrs(made)
    outputs = AccumulatedGradient.infer_shape(attrs, *(graph.shapes[e] for e in entries))[1]
    return request_of(graph, AccumulatedGradient, attrs, entries, outputs)
