"""A dense layer takes the activation behind it along, and its gradient that of the activation before it.

    FullyConnected -> relu                              becomes  _dense_activation
    gradient in data of FullyConnected -> that of gelu  becomes  _dense_slope

A kernel of matrix products does the rest to each number of its result before it stores it. What lies between
must have no other reader, and be no output: a GELU in training keeps what it is given for its gradient, and
stays apart forwards, so that a plan may drop its result and make it again without the product. The new node
stands where the product stood. Run it after gradients in data are nodes of their own (`split_gradients`), and
before chains of elementwise operators are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...graph import Entry, Graph, Node, Op, Rewriter
from ...ops.elementwise.activation import Activation, gelu, relu
from ...ops.elementwise.leaky import LeakyReLU
from ...ops.nn.dense import FullyConnected
from ..base import Request
from ..dense.operators import _dense_activation, _dense_slope, DenseActivationAttrs, DenseSlopeAttrs
from .entries import only_readers
from .norm_act import agree


def dense_epilogue(
    graph: Graph, kept: frozenset[Entry], num_forward: int, has_kernel: Callable[[Request], bool]
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with products that do what follows them; see `Backend.combine`. O(nodes).

    `has_kernel` says for a `_dense_activation` and a `_dense_slope` whether the backend has a kernel.
    """
    reader = only_readers(graph, kept)
    end_of: dict[Node, Node] = {}  # of a product, the activation that it takes along
    for node in graph.nodes:
        found = _match(graph, reader, node)
        if found is not None and has_kernel(_request(graph, *found[1:])):
            end_of[node] = found[0]
    if not end_of:
        return graph, {}, num_forward
    taken = set(end_of.values())
    made = Rewriter(graph)
    seen = fewer = 0  # operators so far, and those of the forward pass that are gone
    for node in graph.nodes:
        seen += node.op is not None
        if node in taken:
            fewer += seen <= num_forward
            continue
        if node in end_of:
            end = end_of[node]
            op, attrs, inputs = _joined(node, end)
            new = Node(op, attrs, made.all_of(inputs), end.name, annotations=dict(end.annotations))
            made.node_of[node] = new
            made.order.append(new)
            made.put(Entry(end), Entry(new))
        else:
            made.keep(node)
    return made.graph(), made.moved, num_forward - fewer


def activation_of(node: Node) -> str:
    """The name of the activation that `node` is, "" for any other node."""
    if node.op is relu or (node.op is Activation and node.attrs.act_type == "relu"):
        return "relu"
    if node.op is gelu:
        return "gelu" if node.attrs.approximate == "none" else "gelu_tanh"
    return "gelu" if node.op is LeakyReLU and node.attrs.act_type == "gelu" else ""


def _match(
    graph: Graph, reader: Mapping[Entry, Node], node: Node
) -> tuple[Node, type[Op], Any, tuple[Entry, ...], Entry] | None:
    """The activation, or its gradient, that the product `node` can take along, and what they become."""
    if node.op is FullyConnected:
        end = reader.get(Entry(node))
        if end is None or not activation_of(end) or not agree(node, end):
            return None
        return (end, *_joined(node, end), Entry(end))
    if node.op is not FullyConnected.grad_op or node.absent != {"data"}:
        return None
    made = Entry(node, node.output_names.index("d_data"))
    end = reader.get(made)
    if end is None or end.forward is None or not activation_of(end.forward) or not agree(node, end):
        return None
    if dict(zip(end.input_names, end.inputs)).get("d_out") != made:
        return None
    return (end, *_joined(node, end), Entry(end))


def _joined(node: Node, end: Node) -> tuple[type[Op], Any, tuple[Entry, ...]]:
    """Operator, attributes and inputs of the node that stands for a product and the activation behind it."""
    if end.forward is None:
        a = node.attrs
        name: Any = activation_of(end)
        attrs = DenseActivationAttrs(a.num_hidden, no_bias=a.no_bias, flatten=a.flatten, activation=name)
        return _dense_activation, attrs, node.inputs
    name = activation_of(end.forward)
    named, product = dict(zip(end.input_names, end.inputs)), dict(zip(node.input_names, node.inputs))
    known = named["out" if name == "relu" else "data"]
    return _dense_slope, DenseSlopeAttrs(name), (product["d_out"], product["weight"], known)


def _request(graph: Graph, op: type[Op], attrs: Any, inputs: tuple[Entry, ...], made: Entry) -> Request:
    dtypes = tuple(graph.dtypes[e] for e in inputs)
    shapes = tuple(graph.shapes[e] for e in inputs)
    return Request(op, attrs, shapes, (graph.shapes[made],), dtypes[0], dtypes)
