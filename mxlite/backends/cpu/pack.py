"""Weights that stay, in the layout their kernel wants: reordered when they change, not at each call.

At batch size 1 reordering takes as long as convolving. A packed weight takes the bytes of the plain one where
it can (`Slabs`) and where nobody else in the graph reads that; elsewhere that of a convolution is another
array. That of a dense layer is not, which gains less: a tenth to a fifth of its time for hundreds of rows.

A dense layer that would narrow its weight at each call reads a copy in 16 bits: half the bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core.dtype import as_dtype
from ...graph import Entry, Graph, Node, Op, Rewriter
from ...ops.elementwise.cast import Cast
from ...ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue
from ...ops.nn.dense import FullyConnected
from ..fused.tiled import Tiled
from ..passes.entries import request_of
from ..passes.target import Target
from ..rewrite import graph_pass, Stage, Step
from .packed import PackedAttrs, PackedKernel, PackedLayer, PackWeight

_BYTE = as_dtype("uint8")
_CONVOLUTIONS = (ConvolutionChannelsLast, ConvolutionEpilogue)
PADDING = 1 / 3  # most bytes of padding of a dense layer's packed weight, as a share of the plain one


@graph_pass(Stage.CONSTANTS)
def pack(step: Step, target: Target) -> Step:
    """Packed weights in an inference pass, where these do not change from call to call. O(nodes)."""
    forms: dict[Entry, Any] = {}
    made = Rewriter(step.graph)
    for node in made.walk():
        if _is_layer(node) and node.inputs[1] in step.constant:
            _pack(step, made, node, forms)
        elif _casts_weight(node) and node.inputs[0] in step.constant:
            _narrow(step.graph, made, node)
        else:
            made.keep(node)
    if not made.moved:
        return step
    return step.became(made.graph(), made.moved, forms=forms)


def _pack(step: Step, made: Rewriter, node: Node, forms: dict[Entry, Any]) -> None:
    """Add the layer `node` with a packed weight, or as it is where a plain one is as good."""
    graph, inputs = step.graph, made.inputs(node)
    way = _way(graph, node)
    if way is None:
        made.keep(node)
        return
    attrs = PackedAttrs(node.attrs, way, graph.shapes[node.inputs[1]], graph.shapes[Entry(node)])
    weight = packed = inputs[1]
    is_alone = step.readers.only(node.inputs[1]) is node and weight.node.op is None
    if step.in_place and is_alone and way.slabs is not None and _is_dense_enough(graph, node, way):
        forms[weight] = way.slabs
    elif node.op is FullyConnected:
        made.keep(node)
        return
    else:
        packed = _added(made, PackWeight, attrs, weight, f"{node.name}_packed")
        made.shapes[packed], made.dtypes[packed] = (way.layout.nbytes,), _BYTE
    own = (inputs[0], packed, *inputs[2:])
    made.replace(node, Node(PackedLayer, attrs, own, node.name, annotations=node.annotations))


def _narrow(graph: Graph, made: Rewriter, node: Node) -> None:
    """Add the dense layer `node` with a copy of its weight in its data's type."""
    weight, data, *bias = made.inputs(node)
    dtype, rank = made.dtypes[data], len(graph.shapes[Entry(node)])
    narrow = _added(made, Cast, Cast.Attrs(dtype=dtype.name), weight, f"{node.name}_narrowed")
    made.shapes[narrow], made.dtypes[narrow] = made.shapes[weight], dtype
    layer = FullyConnected.Attrs(made.shapes[weight][0], no_bias=not bias, flatten=rank == 2)
    new = replace(node, op=FullyConnected, attrs=layer, inputs=(data, narrow, *bias))
    made.put(Entry(node), Entry(made.replace(node, new)))


def _added(made: Rewriter, op: type[Op], attrs: Any, source: Entry, name: str) -> Entry:
    """The output of a new node that reads `source`."""
    made.order.append(node := Node(op, attrs, (source,), name))
    return Entry(node)


def _casts_weight(node: Node) -> bool:
    """True for a dense layer that casts its weight, see `passes/tiling/inline_dense_casts.py`."""
    return (
        node.op is Tiled
        and node.attrs.operators == (Cast, FullyConnected)
        and node.attrs.calls[1].inputs[0] == 1
    )


def _is_layer(node: Node) -> bool:
    return node.op in _CONVOLUTIONS or node.op is FullyConnected


def _is_dense_enough(graph: Graph, node: Node, way: PackedKernel) -> bool:
    """True unless the padding of a packed weight takes more than the gain of a dense layer is worth."""
    plain = graph.nbytes(node.inputs[1])
    return node.op in _CONVOLUTIONS or way.layout.nbytes <= plain * (1 + PADDING)


def _way(graph: Graph, node: Node) -> PackedKernel | None:
    """How to compute a layer with packed weights; None where plain ones are as good."""
    assert node.op is not None
    outs = (graph.shapes[Entry(node)],)
    request = request_of(graph, node.op, node.attrs, node.inputs, outs, train=False)
    if node.op is FullyConnected:
        from .dense import packed_dense  # here, as what follows: networks without such layers need none of it

        return packed_dense(request)
    from .convolution.direct import Forward
    from .kernels.convolutions.conv import way_of

    way = way_of(request)
    return way.packed() if isinstance(way, Forward) else None
