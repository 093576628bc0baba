"""Inlined casts of weights: in mixed precision a dense layer of few samples casts some rows at a time.

    weight -> Cast -> FullyConnected(data, .)            tiles of weight -> Cast -> FullyConnected
              Cast -> gradient in data                   tiles of weight -> Cast -> gradient in data

    for rows [a, b)    narrow = weight[a:b] in 16 bits        a tile, small enough to stay in the cache
                       out[:, a:b] = data @ narrow.T + bias[a:b]

    for rows [a, b)    narrow = weight[a:b] in 16 bits
                       d_data += grad[:, a:b] @ narrow        in float32, rounded once

With few samples the copy in 16 bits is most of what a layer touches: it is written to memory, read twice, and
for a large layer it is the largest array of a step. It must have no other reader. The pass comes after
`split_gradients`: the gradient in the weight reads no weight then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ...fused.tile_sizes import weight_cast_tiles
from ...fused.tiled import TileArray, Tiled, TiledGradient
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .region import COLUMNS, Part, Region, ROWS, WHOLE

LEAST_BYTES = 512 * 1024
"""Least bytes of a copy that is worth a region."""

MOST_SAMPLES = 128
"""Rows of data up to which reading the weight takes much of the time, and a copy of it most of the bytes.
With more, products of some rows of the weight are slower than one of all."""

_Regions = dict[Node, tuple[Region, Part]]


@graph_pass(Stage.STEP, after=("split_gradients", "inline_batch_casts"), anchors=(Cast,))
def inline_weight_casts(step: Step, target: Target) -> Step:
    """Dense layers that cast their weight, where code can be generated for that. O(inputs)."""
    found = _matches(step, target) if target.storable() else {}
    regions = {reader: made for readers in found.values() for reader, made in readers.items()}

    def add(made: Rewriter, node: Node) -> None:
        region, result = regions[node]
        op, name = (Tiled, "out") if node.op is FullyConnected else (TiledGradient, "d_data")
        made.order.append(new := region.node(op, [result], node, made))
        made.put(output(node, name), Entry(new))

    return step.substituted(regions, add, gone=found)


def _matches(step: Step, target: Target) -> dict[Node, _Regions]:
    """The casts that are not needed, with the regions of their readers."""
    found: dict[Node, _Regions] = {}
    for cast in step.operators:
        if cast.op is Cast and _is_large(step.graph, cast) and Entry(cast) not in step.shown:
            regions = _regions(step.graph, cast, step.readers.all(Entry(cast)), target)
            if regions:
                found[cast] = regions
    return found


def _is_large(graph: Graph, cast: Node) -> bool:
    made = Entry(cast)
    return (
        graph.dtypes[cast.inputs[0]] == float32
        and graph.dtypes[made].itemsize == 2
        and graph.nbytes(made) >= LEAST_BYTES
    )


def _regions(graph: Graph, cast: Node, readers: Sequence[Node], target: Target) -> _Regions:
    """Regions for all readers of the copy; none if one of them is something else than a dense layer of few
    samples, or its gradient in data alone, or if the backend has no kernel for tiles of it.
    """
    found: _Regions = {}
    for node in readers:
        named = node.named_inputs
        if named.get("weight") != Entry(cast) or [e.node for e in node.inputs].count(cast) > 1:
            return {}
        if node.op is FullyConnected:
            rows = prod(graph.shapes[Entry(node)][:-1])
        elif node.op is FullyConnected.grad_op and "data" in node.absent:
            rows = prod(graph.shapes[named["d_out"]][:-1])
        else:
            return {}
        if rows > MOST_SAMPLES or {graph.dtypes[e] for e in node.inputs} != {graph.dtypes[Entry(cast)]}:
            return {}
        if not all(map(prod, (graph.shapes[e] for e in node.inputs))):
            return {}
        region, result = found[node] = _region(graph, node, named, cast.inputs[0])
        if not target.has_tile_kernels(region.attrs([result]), (FullyConnected, FullyConnected.grad_op)):
            return {}
    return found


def _region(graph: Graph, node: Node, named: Mapping[str, Entry], weight: Entry) -> tuple[Region, Part]:
    """The region that does the same as `node` with the wide weight, and its result."""
    rows, width = graph.shapes[weight]
    region = Region(graph, (weight_cast_tiles(rows, width),))
    dtype = graph.dtypes[named["weight"]]
    cast = Cast.Attrs(dtype=dtype.name)
    layer = FullyConnected.Attrs(num_hidden=rows, no_bias="bias" not in named)
    wide = {"data": region.input(weight, ROWS)}
    reads = {"weight": region.call(Cast, cast, wide, {"out": TileArray((rows, width), dtype, ROWS)})["out"]}
    if node.op is FullyConnected:
        made = graph.shapes[Entry(node)]
        count = prod(made[:-1])
        reads["data"] = region.input(named["data"], WHOLE, (count, width))
        if "bias" in named:
            reads["bias"] = region.input(named["bias"], ROWS)
        out = TileArray((count, rows), dtype, COLUMNS, given=made)
        return region, region.call(FullyConnected, layer, reads, {"out": out})["out"]
    made = graph.shapes[output(node, "d_data")]
    count = prod(graph.shapes[named["d_out"]][:-1])
    reads["d_out"] = region.input(named["d_out"], COLUMNS, (count, rows))
    total = TileArray((count, width), float32, WHOLE)
    assert FullyConnected.grad_op is not None
    total_of = region.call(FullyConnected.grad_op, layer, reads, {"d_data": total})["d_data"]
    rounded = TileArray((count, width), dtype, WHOLE, given=made)
    return region, region.call(Cast, cast, {"data": total_of}, {"out": rounded}, level=0)["out"]
