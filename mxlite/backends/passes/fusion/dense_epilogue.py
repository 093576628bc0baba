"""Epilogue fusion of a dense layer with its activation, and of its gradient with that of an activation.

    FullyConnected -> relu                              becomes  _dense_activation
    gradient in data of FullyConnected -> that of gelu  becomes  _dense_slope

A kernel of matrix products applies the rest to each number of its result before it stores it. The array
between must have no other reader, and be no output. A GELU in training keeps its input for its gradient: its
forward node is not fused, so that a plan may drop its result and recompute it without the product. The new
node takes the place of the product.
"""

from __future__ import annotations

from typing import Any

from ....graph import Entry, Node, Op, Rewriter
from ....ops.elementwise.activation import Activation, gelu, relu
from ....ops.elementwise.leaky import LeakyReLU
from ....ops.nn.dense import FullyConnected
from ...fused.dense_activation import DenseActivation, DenseActivationAttrs, DenseSlope, DenseSlopeAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import output, request_of
from ..target import Target
from .norm_act import agree


@graph_pass(Stage.STEP, after=("split_gradients",), anchors=(FullyConnected,))
def dense_epilogue(step: Step, target: Target) -> Step:
    """The step with activations fused into products. O(nodes)."""
    graph = step.graph
    end_of: dict[Node, Node] = {}  # product -> the activation that is fused into it
    for node in graph.nodes:
        end = _end_of(step, node)
        if end is not None:
            op, attrs, inputs = _joined(node, end)
            if target.has_kernel(request_of(graph, op, attrs, inputs, (graph.shapes[Entry(end)],))):
                end_of[node] = end

    def add(made: Rewriter, node: Node) -> None:
        end = end_of[node]
        op, attrs, inputs = _joined(node, end)
        new = Node(op, attrs, made.all_of(inputs), end.name, annotations=dict(end.annotations))
        made.node_of[node] = new
        made.order.append(new)
        made.put(Entry(end), Entry(new))

    return step.substituted(end_of, add, gone=set(end_of.values()))


def activation_of(node: Node) -> str:
    """The name of the activation that `node` is, "" for any other node."""
    if node.op is relu or (node.op is Activation and node.attrs.act_type == "relu"):
        return "relu"
    if node.op is gelu:
        return "gelu" if node.attrs.approximate == "none" else "gelu_tanh"
    return "gelu" if node.op is LeakyReLU and node.attrs.act_type == "gelu" else ""


def _end_of(step: Step, node: Node) -> Node | None:
    """The activation, or its gradient, that the product `node` can take along."""
    if node.op is FullyConnected:
        end = step.readers.only(Entry(node))
        return end if end is not None and activation_of(end) and agree(node, end) else None
    if node.op is not FullyConnected.grad_op or node.absent != {"data"}:
        return None
    made = output(node, "d_data")
    end = step.readers.only(made)
    if end is None or end.forward is None or not activation_of(end.forward) or not agree(node, end):
        return None
    return end if end.named_inputs.get("d_out") == made else None


def _joined(node: Node, end: Node) -> tuple[type[Op], Any, tuple[Entry, ...]]:
    """Operator, attributes and inputs of the node that stands for a product and the activation behind it."""
    if end.forward is None:
        a = node.attrs
        name: Any = activation_of(end)
        attrs = DenseActivationAttrs(a.num_hidden, no_bias=a.no_bias, flatten=a.flatten, activation=name)
        return DenseActivation, attrs, node.inputs
    name = activation_of(end.forward)
    named, product = end.named_inputs, node.named_inputs
    known = named["out" if name == "relu" else "data"]
    return DenseSlope, DenseSlopeAttrs(name), (product["d_out"], product["weight"], known)
