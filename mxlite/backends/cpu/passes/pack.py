"""Weights that stay, in the layout their convolution wants: reordered when they change, not at each call.

At batch size 1 reordering takes as long as convolving. A packed weight takes the bytes of the plain one where
it can (`Slabs`) and where nobody else in the graph reads that; elsewhere it is another array.

A dense layer that would narrow its weight at each call reads a copy in 16 bits: half the bytes.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from ....core.dtype import as_dtype
from ....graph import Entry, Graph, Node
from ....ops.elementwise.cast import Cast
from ....ops.nn.conv_channels_last import _convolution_channels_last, _convolution_epilogue
from ....ops.nn.dense import FullyConnected
from ... import base
from ...narrowed_dense import _narrowed_dense
from ..convolution.direct import Forward
from ..kernels.conv import way_of
from ..packed import _pack_weight, _packed_convolution, PackedAttrs

_BYTE = as_dtype("uint8")
_CONVOLUTIONS = (_convolution_channels_last, _convolution_epilogue)


def pack(
    graph: Graph, kept: Set[Entry], in_place: bool
) -> tuple[Graph, dict[Entry, Entry], dict[Entry, Any]]:
    """`graph`, an inference pass, with packed weights where these are in `kept`; where entries went; and the
    variables that are to be packed where they are, each with its form. O(nodes).

    kept: what does not change from call to call. in_place: whether variables may be.
    """
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    forms: dict[Entry, Any] = {}
    uses = graph.uses()
    moved: dict[Entry, Entry] = {}
    order: list[Node] = []
    for node in graph.nodes:
        new = node
        inputs = tuple(moved.get(e, e) for e in node.inputs)
        way = _way(graph, node) if node.op in _CONVOLUTIONS and node.inputs[1] in kept else None
        if way is not None:
            attrs = PackedAttrs(node.attrs, way, graph.shapes[node.inputs[1]], graph.shapes[Entry(node)])
            packed, alone = inputs[1], uses[node.inputs[1]] == 1 and inputs[1].node.op is None
            if in_place and alone and way.slabs is not None:
                forms[packed] = way.slabs
            else:
                packed = Entry(Node(_pack_weight, attrs, (inputs[1],), f"{node.name}_packed"))
                shapes[packed], dtypes[packed] = (way.layout.nbytes,), _BYTE
                order.append(packed.node)
            own = (inputs[0], packed, *inputs[2:])
            new = Node(_packed_convolution, attrs, own, node.name, annotations=node.annotations)
        elif node.op is _narrowed_dense and node.inputs[1] in kept:
            dtype = dtypes[inputs[0]]
            copy = Node(Cast, Cast.Attrs(dtype=dtype.name), inputs[1:2], f"{node.name}_narrowed")
            narrow = Entry(copy)
            shapes[narrow], dtypes[narrow] = shapes[inputs[1]], dtype
            order.append(copy)
            new = replace(node, op=FullyConnected, inputs=(inputs[0], narrow, *inputs[2:]))
        elif inputs != node.inputs:
            new = replace(node, inputs=inputs)
        order.append(new)
        if new is not node:
            for i in range(node.num_outputs):
                old, e = Entry(node, i), Entry(new, i)
                shapes[e], dtypes[e] = shapes[old], dtypes[old]
                moved[old] = e
    if not moved:
        return graph, {}, {}
    outputs = tuple(moved.get(e, e) for e in graph.outputs)
    made = replace(graph, outputs=outputs, order=tuple(order), shapes=shapes, dtypes=dtypes)
    return made, moved, forms


def _way(graph: Graph, node: Node) -> Forward | None:
    """How to convolve with packed weights; None where plain ones are as good."""
    assert node.op is not None
    ins = tuple(graph.shapes[e] for e in node.inputs)
    kinds = tuple(graph.dtypes[e] for e in node.inputs)
    outs = (graph.shapes[Entry(node)],)
    way = way_of(base.Request(node.op, node.attrs, ins, outs, kinds[0], kinds, None, False))
    return way.packed() if isinstance(way, Forward) else None
