"""A large gradient in the weight of a convolution is made where it is used: inside the update, some filters
at a time.

    d_weight = from d_out, data     update(weight, d_weight, states)      becomes
                                    update(weight, d_out, data, states)

On the same conditions as in `product_updates.py`. A gradient in the bias is made with that in the weight, and
keeps both as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...graph import Entry, Graph, Node, Rewriter
from ...ops.nn.conv_channels_last import _convolution_channels_last
from ...ops.nn.normed_convolution import _normed_convolution_d_weight
from ..base import Request
from ..convolution_update import _convolution_update, ConvolutionUpdateAttrs
from .product_updates import DEEP_LEAST_BYTES, joinable


def convolution_updates(
    graph: Graph,
    kept: frozenset[Entry],
    num_forward: int,
    has_kernel: Callable[[Request], bool],
    least_bytes: int = DEEP_LEAST_BYTES,
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with updates that make their gradient; see `Backend.combine`. O(inputs).

    `has_kernel` says for a `_convolution_update` whether the backend has one. Gradients of fewer than
    `least_bytes` bytes stay as they are. Run it after `split_gradients` and `normed_loads`.
    """
    uses = graph.uses()
    forward = set([n for n in graph.nodes if n.op is not None][:num_forward])
    joined: dict[Node, Node] = {}  # by the node that makes the gradient
    gone: dict[Node, Node] = {}
    for update in joinable(graph, kept):
        gradient = update.inputs[1]
        made = gradient.node
        if made in forward or gradient not in graph.shapes or graph.nbytes(gradient) < least_bytes:
            continue
        others = [Entry(made, i) for i in range(made.num_outputs) if Entry(made, i) != gradient]
        if not _is_maker(made) or any(e in uses or e in kept for e in others):
            continue
        new = _joined(made, update)
        if has_kernel(_request(graph, new)):
            joined[made] = gone[update] = new
    if not joined:
        return graph, {}, num_forward
    result = Rewriter(graph)
    result.node_of |= gone
    result.order += [n for n in graph.nodes if n.op is None]  # weights and states: before where they stood
    result.order += [joined.get(n, n) for n in graph.nodes if n.op is not None and n not in gone]
    return result.graph(), {}, num_forward


def _is_maker(node: Node) -> bool:
    """Whether a node makes a gradient in the weight of a convolution, and none in data."""
    if node.op is _normed_convolution_d_weight:
        return True
    return node.op is _convolution_channels_last.grad_op and "weight" in node.absent


def _joined(made: Node, update: Node) -> Node:
    assert made.op is not None and update.op is not None
    named = dict(zip(made.input_names, made.inputs))
    is_normed = made.op is _normed_convolution_d_weight
    maker = made.op if is_normed else _convolution_channels_last
    attrs = ConvolutionUpdateAttrs(update.op, update.attrs, maker, made.attrs)
    inputs = made.inputs if is_normed else (named["d_out"], named["data"])
    weight, _, *others = update.inputs
    return Node(_convolution_update, attrs, (*inputs, weight, *others), update.name)


def _request(graph: Graph, node: Node) -> Request:
    """The question for a kernel for an update."""
    shapes, dtypes = tuple(graph.shapes[e] for e in node.inputs), tuple(graph.dtypes[e] for e in node.inputs)
    attrs: Any = node.attrs
    return Request(_convolution_update, attrs, shapes, (), dtypes[0], dtypes)
