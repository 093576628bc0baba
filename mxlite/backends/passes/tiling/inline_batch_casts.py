"""Inlined casts of a batch: in mixed precision a dense layer casts some samples of float32 data at a time.

    data -> Cast -> FullyConnected(., weight)          tiles of data -> Cast -> FullyConnected
            Cast -> gradient in the weight -> Cast     tiles of data -> Cast -> gradient in the weight

    for samples [a, b)    narrow = data[a:b] in 16 bits           a tile, small enough to stay in the cache
                          out[a:b] = narrow @ weight.T + bias

    for samples [a, b)    narrow = data[a:b] in 16 bits
                          d_weight += d_out[a:b].T @ narrow       in float32, and not rounded

A batch from the user stays float32. If it has more elements than the following layers' results, as in a
perceptron, a copy in 16 bits costs more than 16 bits save. The copy is recomputed for the backward pass in
any case, so that either pass may do without by itself: if all that read it there can. A copy of what is no
variable stays: that variable dies when the copy is made.

The gradient in the weight is float32 at once, and its bias's a node of its own. That takes more bytes than a
gradient of 16 bits, or tiles of one (`gradient_updates`): with so few samples that it is more than the copy,
the copy stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ...fused.tile_sizes import batch_cast_tiles
from ...fused.tiled import TileArray, Tiled, TiledGradient
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .region import Part, Region, ROWS, WHOLE

LEAST_BYTES, LEAST_SAMPLES = 256 * 1024, 512
"""Least bytes of a copy that is worth a region, and least samples of the batch: several tiles."""

_LAYERS = (FullyConnected, FullyConnected.grad_op)


@graph_pass(Stage.STEP, after=("split_gradients",), anchors=(Cast,))
def inline_batch_casts(step: Step, target: Target) -> Step:
    """Dense layers that cast their data, where code can be generated for that. O(inputs)."""
    search = _CastSearch(step, target)
    changed = search.changed() if target.storable() else {}
    if not changed:
        return step
    graph = step.graph
    widened = {search.widening[n] for n in changed if n in search.widening}
    gone = widened | {
        cast
        for cast in changed.values()
        if all(changed.get(n) is cast for n in step.readers.all(Entry(cast)))
    }
    late = {cast for cast in changed.values() if cast not in gone and search.is_late(cast, changed)}
    result = Rewriter(graph)
    for node in result.walk(step.num_forward):
        if node in gone or node in late:
            continue
        for cast in [e.node for e in node.inputs if e.node in late]:
            if node not in changed:  # the first that still reads the copy, in the backward pass
                result.order.append(cast)
                late.discard(cast)
        if node not in changed:
            result.keep(node)
            continue
        if node.op is FullyConnected:
            region, out = search.regions[node]
            result.order.append(new := region.node(Tiled, [out], node, result))
            result.put(Entry(node), Entry(new))
            continue
        named = dict(zip(node.input_names, result.inputs(node)))
        region, out = search.regions[node]
        result.order.append(new := region.node(TiledGradient, [out], node, result))
        result.put(Entry(search.widening[node]), Entry(new))
        if any(output(node, n) in step.read for n in node.output_names if n == "d_bias"):
            result.replace(node, replace(node, inputs=(named["d_out"],), absent=node.absent | {"data"}))
    return step.rewritten(result)


class _CastSearch:
    """The layers that can change, and their regions. widening: the cast of each gradient in a weight, if that
    alone reads it.
    """

    def __init__(self, step: Step, target: Target) -> None:
        self.graph, self.shown, self.readers = step.graph, step.shown, step.readers
        self.forward, self.target = step.forward, target
        self.casts = [n for n in step.operators if n.op is Cast and self._is_copy(n)]
        self.widening: dict[Node, Node] = {}
        self.regions: dict[Node, tuple[Region, Part]] = {}

    def changed(self) -> dict[Node, Node]:
        """The nodes that read a batch as it is, with the cast of it that they do without."""
        found: dict[Node, Node] = {}
        for cast in self.casts:
            readers = self.readers.all(Entry(cast))
            for part in (
                [n for n in readers if n in self.forward],
                [n for n in readers if n not in self.forward],
            ):
                if all(self._takes(n, cast) for n in part):
                    found |= dict.fromkeys(part, cast)
        return found

    def is_late(self, cast: Node, changed: Mapping[Node, Node]) -> bool:
        """True if only the backward pass reads the copy then: it is computed there."""
        return cast in self.forward and not any(
            n in self.forward and changed.get(n) is not cast for n in self.readers.all(Entry(cast))
        )

    def _is_copy(self, cast: Node) -> bool:
        graph, made, source = self.graph, Entry(cast), cast.inputs[0]
        is_narrowing = graph.dtypes[source] == float32 and graph.dtypes[made].itemsize == 2
        is_large = is_narrowing and graph.nbytes(made) >= LEAST_BYTES
        return is_large and source.node.op is None and made not in self.shown

    def _takes(self, node: Node, cast: Node) -> bool:
        """True if `node` can do without the copy that `cast` makes, and that is worth it."""
        graph = self.graph
        named = node.named_inputs
        if named.get("data") != Entry(cast) or node.inputs.count(Entry(cast)) > 1:
            return False
        if not all(prod(graph.shapes[e]) for e in node.inputs):
            return False
        if node.op is FullyConnected:
            samples = prod(graph.shapes[Entry(node)][:-1])
            others = {graph.dtypes[e] for e in node.inputs}
            if samples < LEAST_SAMPLES or others != {graph.dtypes[Entry(cast)]}:
                return False
            return self._has_kernels(node, _forward(graph, node, cast))
        if node.op is not FullyConnected.grad_op or node.absent != {"weight"} or "d_out" not in named:
            return False
        d_weight = output(node, "d_weight")
        cast_of = self.readers.only(d_weight)
        if cast_of is None or cast_of.op is not Cast.grad_op:
            return False
        weight = graph.shapes[d_weight]
        count = prod(graph.shapes[named["d_out"]]) // max(1, weight[0])
        if graph.dtypes[Entry(cast_of)] != float32 or count < max(LEAST_SAMPLES, 3 * weight[0]):
            return False
        self.widening[node] = cast_of
        return self._has_kernels(node, _gradient(graph, node, cast))

    def _has_kernels(self, node: Node, made: tuple[Region, Part]) -> bool:
        region, result = self.regions[node] = made
        return self.target.has_tile_kernels(region.attrs([result]), _LAYERS)


def _narrow(graph: Graph, cast: Node, count: int, width: int) -> tuple[Region, Part]:
    """A region over samples that begins with a cast of some, and what that makes."""
    region = Region(graph, (batch_cast_tiles(count, width),))
    data = region.input(cast.inputs[0], ROWS, (count, width))
    narrow = TileArray((count, width), graph.dtypes[Entry(cast)], ROWS)
    return region, region.call(Cast, cast.attrs, {"data": data}, {"out": narrow})["out"]


def _forward(graph: Graph, node: Node, cast: Node) -> tuple[Region, Part]:
    """The region of a layer, and its result."""
    named, made = node.named_inputs, graph.shapes[Entry(node)]
    rows, width = graph.shapes[named["weight"]]
    count = prod(made[:-1])
    region, narrow = _narrow(graph, cast, count, width)
    reads = {"data": narrow, "weight": region.input(named["weight"], WHOLE)}
    if "bias" in named:
        reads["bias"] = region.input(named["bias"], WHOLE)
    layer = FullyConnected.Attrs(num_hidden=rows, no_bias="bias" not in named)
    out = TileArray((count, rows), graph.dtypes[Entry(node)], ROWS, given=made)
    return region, region.call(FullyConnected, layer, reads, {"out": out})["out"]


def _gradient(graph: Graph, node: Node, cast: Node) -> tuple[Region, Part]:
    """The region of the gradient in a layer's weight, and its result."""
    rows, width = graph.shapes[output(node, "d_weight")]
    d_out = node.named_inputs["d_out"]
    count = prod(graph.shapes[d_out]) // rows
    region, narrow = _narrow(graph, cast, count, width)
    reads = {"d_out": region.input(d_out, ROWS, (count, rows)), "data": narrow}
    layer = FullyConnected.Attrs(num_hidden=rows, no_bias=True)
    assert FullyConnected.grad_op is not None
    total = TileArray((rows, width), float32, WHOLE)
    return region, region.call(FullyConnected.grad_op, layer, reads, {"d_weight": total})["d_weight"]
