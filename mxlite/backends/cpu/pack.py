"""Weights that stay, in the layout their convolution or dense layer wants: reordered when they change, not at
each call.

At batch size 1 reordering takes as long as convolving. A packed weight takes the bytes of the plain one where
it can (`Slabs`) and where nobody else in the graph reads that. Elsewhere that of a convolution is another
array, and a dense layer reads the plain one, as its weights are most of what a transformer holds.

A dense layer that would narrow its weight at each call reads a copy in 16 bits: half the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, TYPE_CHECKING

from ...core.dtype import as_dtype, float32
from ...graph import Entry, Graph, Node, Op, Rewriter
from ...ops.elementwise.cast import Cast
from ...ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue
from ...ops.nn.dense import FullyConnected
from ..fused.tiled import Tiled
from ..passes.entries import request_of
from ..passes.target import Target
from ..rewrite import graph_pass, Stage, Step
from .packed import PackedAttrs, PackedConvolution, PackedDense, PackWeight

if TYPE_CHECKING:
    from .convolution.direct import Forward
    from .packed_dense import DenseWay

_BYTE = as_dtype("uint8")


@graph_pass(Stage.CONSTANTS)
def pack(step: Step, target: Target) -> Step:
    """Packed weights in an inference pass, where these do not change from call to call. O(nodes)."""
    graph = step.graph
    forms: dict[Entry, Any] = {}
    made = Rewriter(graph)
    for node in made.walk():
        op, find = _PACKED.get(node.op, (None, None))
        way = find(graph, node) if find is not None and node.inputs[1] in step.constant else None
        inputs = made.inputs(node)
        in_place = (
            way is not None
            and step.in_place
            and step.readers.only(node.inputs[1]) is node
            and inputs[1].node.op is None
            and way.slabs is not None
        )
        if way is not None and op is not None and (in_place or op is PackedConvolution):
            attrs = PackedAttrs(node.attrs, way, graph.shapes[node.inputs[1]], graph.shapes[Entry(node)])
            packed = inputs[1]
            if in_place:
                forms[packed] = way.slabs
            else:
                packed = _added(made, PackWeight, attrs, packed, f"{node.name}_packed")
                made.shapes[packed], made.dtypes[packed] = (way.layout.nbytes,), _BYTE
            own = (inputs[0], packed, *inputs[2:])
            made.replace(node, Node(op, attrs, own, node.name, annotations=node.annotations))
        elif _casts_weight(node) and node.inputs[0] in step.constant:
            weight, data, *bias = inputs
            dtype, rank = made.dtypes[data], len(graph.shapes[Entry(node)])
            narrow = _added(made, Cast, Cast.Attrs(dtype=dtype.name), weight, f"{node.name}_narrowed")
            made.shapes[narrow], made.dtypes[narrow] = made.shapes[weight], dtype
            layer = FullyConnected.Attrs(made.shapes[weight][0], no_bias=not bias, flatten=rank == 2)
            new = replace(node, op=FullyConnected, attrs=layer, inputs=(data, narrow, *bias))
            made.put(Entry(node), Entry(made.replace(node, new)))
        else:
            made.keep(node)
    if not made.moved:
        return step
    return step.became(made.graph(), made.moved, forms=forms)


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


def _way(graph: Graph, node: Node) -> Forward | None:
    """How to convolve with packed weights; None where plain ones are as good."""
    from .convolution.direct import Forward  # here, since networks without convolutions need none of it
    from .kernels.convolutions.conv import way_of

    assert node.op is not None
    outs = (graph.shapes[Entry(node)],)
    way = way_of(request_of(graph, node.op, node.attrs, node.inputs, outs, train=False))
    return way.packed() if isinstance(way, Forward) else None


def _dense_way(graph: Graph, node: Node) -> DenseWay | None:
    """How to multiply by a packed weight; None where a plain one is as good."""
    arrays = (*node.inputs, Entry(node))
    if any(graph.dtypes[e] != float32 for e in arrays):
        return None
    from .packed_dense import dense_way

    rows = prod(graph.shapes[Entry(node)][:-1])
    n, k = graph.shapes[node.inputs[1]]
    return dense_way(rows, n, k, len(node.inputs) == 3)


_PACKED: dict[type[Op] | None, tuple[type[Op], Callable[[Graph, Node], Forward | DenseWay | None]]] = {
    ConvolutionChannelsLast: (PackedConvolution, _way),
    ConvolutionEpilogue: (PackedConvolution, _way),
    FullyConnected: (PackedDense, _dense_way),
}
"""For each operator the one with a packed weight, and the function that finds its algorithm."""
