"""Inlined casts of dense layers: in mixed precision they cast a tile at a time of a float32 batch or weight.

    for samples [a, b)    narrow = data[a:b] in 16 bits           a tile, small enough to stay in the cache
                          out[a:b] = narrow @ weight.T + bias
                          d_weight += d_out[a:b].T @ narrow       in float32, and not rounded

    for rows [a, b)       narrow = weight[a:b] in 16 bits
                          out[:, a:b] = data @ narrow.T + bias[a:b]
                          d_data += d_out[:, a:b] @ narrow        in float32, rounded once

A batch from the user stays float32. If it has more elements than the following layers' results, as in a
perceptron, a copy in 16 bits costs more than 16 bits save. The copy is recomputed for the backward pass in
any case, so that either pass may do without by itself: if all that read it there can. A copy of what is no
variable stays: that variable dies when the copy is made. The gradient in the weight is float32 at once, and
its bias's a node of its own. That takes more bytes than a gradient of 16 bits, or tiles of one
(`gradient_updates`): with so few samples that it is more than the copy, the copy stays.

With few samples the copy of a weight is most of what a layer touches: it is written to memory, read twice,
and for a large layer it is the largest array of a step. It must have no other reader. The pass comes after
`split_gradients`: the gradient in the weight reads no weight then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ...fused.tile_sizes import batch_cast_tiles, weight_cast_tiles
from ...fused.tiled import Axes, TileArray, Tiled, TiledGradient
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .region import COLUMNS, Part, put_bias_gradient, Region, ROWS, WHOLE

LEAST_BYTES = {"data": 256 * 1024, "weight": 512 * 1024}
"""Least bytes of a copy that is worth a region."""

LEAST_SAMPLES = 512
"""Least samples of a batch: several tiles."""

MOST_SAMPLES = 128
"""Rows of data up to which reading the weight takes much of the time, and a copy of it most of the bytes.
With more, products of some rows of the weight are slower than one of all."""

_LAYERS = (FullyConnected, FullyConnected.grad_op)

_AXES: dict[str, dict[str, Axes]] = {
    "data": {"data": ROWS, "out": ROWS, "d_out": ROWS, "weight": WHOLE, "bias": WHOLE},
    "weight": {"weight": ROWS, "bias": ROWS, "out": COLUMNS, "d_out": COLUMNS, "data": WHOLE},
}
"""The factor that is cast in tiles -> how the arrays of a layer are sliced then."""


class _Inlined(NamedTuple):
    """A layer or one of its gradients, as a region without `cast`; `made` is the entry that `result` is."""

    cast: Node
    region: Region
    result: Part
    made: Entry


@graph_pass(Stage.STEP, after=("split_gradients", "activation_prologue"), anchors=(Cast,))
def inline_dense_casts(step: Step, target: Target) -> Step:
    """Dense layers that cast a factor, where code can be generated for that. O(inputs)."""
    found = _found(step, target) if target.storable() else {}
    if not found:
        return step
    readers, casts = step.readers, dict.fromkeys(i.cast for i in found.values())

    def reads_copy(node: Node, cast: Node) -> bool:
        return node not in found or found[node].cast is not cast

    gone = {c for c in casts if not any(reads_copy(n, c) for n in readers.all(Entry(c)))}
    late = {  # only the backward pass reads the copy: it is computed there
        c
        for c in casts.keys() & step.forward.keys() - gone
        if not any(n in step.forward and reads_copy(n, c) for n in readers.all(Entry(c)))
    }
    gone |= {i.made.node for node, i in found.items() if i.made.node is not node}
    result = Rewriter(step.graph)
    for node in result.walk(step.num_forward):
        if node in gone or node in late:
            continue
        if node in found:
            inlined, op = found[node], Tiled if node.op is FullyConnected else TiledGradient
            inlined.region.put(result, op, node, {inlined.made: inlined.result})
            put_bias_gradient(result, node, step)
            continue
        for cast in [e.node for e in node.inputs if e.node in late]:
            result.order.append(cast)  # before the first that still reads the copy
            late.discard(cast)
        result.keep(node)
    return step.rewritten(result)


def _found(step: Step, target: Target) -> dict[Node, _Inlined]:
    """The layers and gradients that can do without a copy, if all can that read it in the same pass."""
    found: dict[Node, _Inlined] = {}
    for factor, least in LEAST_BYTES.items():
        for cast in step.operators:
            if cast.op is not Cast or not _is_copy(step, cast, factor, least):
                continue
            for those in _readers(step, cast, factor):
                inlined = {n: _inlined(step, n, cast, factor, target) for n in those if n not in found}
                if len(inlined) == len(set(those)) and None not in inlined.values():
                    found |= {n: i for n, i in inlined.items() if i is not None}
    return found


def _is_copy(step: Step, cast: Node, factor: str, least: int) -> bool:
    """True for a large 16-bit copy that nobody else wants; of data, one of a variable."""
    graph, made, source = step.graph, Entry(cast), cast.inputs[0]
    is_narrowing = graph.dtypes[source] == float32 and graph.dtypes[made].itemsize == 2
    if not is_narrowing or graph.nbytes(made) < least or made in step.shown:
        return False
    return factor == "weight" or source.node.op is None


def _readers(step: Step, cast: Node, factor: str) -> Iterator[Sequence[Node]]:
    """The readers of a copy: those of data in either pass, of a weight in both."""
    readers = step.readers.all(Entry(cast))
    if factor == "weight":
        yield readers
    else:
        yield [n for n in readers if n in step.forward]
        yield [n for n in readers if n not in step.forward]


def _inlined(step: Step, node: Node, cast: Node, factor: str, target: Target) -> _Inlined | None:
    """`node` with the factor as it is, if it is a layer or gradient for which that pays."""
    graph, named = step.graph, node.named_inputs
    other = "data" if factor == "weight" else "weight"
    head = Entry(node) if node.op is FullyConnected else named.get("d_out")
    if node.op not in _LAYERS or head is None or named.get(factor) != Entry(cast):
        return None
    if node.inputs.count(Entry(cast)) > 1 or not all(prod(graph.shapes[e]) for e in node.inputs):
        return None
    if {graph.dtypes[e] for e in node.inputs} != {graph.dtypes[Entry(cast)]}:
        return None
    made, (*samples, rows) = Entry(node), graph.shapes[head]
    least, most = (LEAST_SAMPLES, None) if factor == "data" else (0, MOST_SAMPLES)
    if node.op is not FullyConnected:
        if node.absent != {other}:
            return None
        made = output(node, f"d_{other}")
        if factor == "data":
            widening = step.readers.only(made)
            if widening is None or widening.op is not Cast.grad_op:
                return None
            made, least = Entry(widening), max(least, 3 * rows)
            if graph.dtypes[made] != float32:
                return None
    if prod(samples) < least or (most is not None and prod(samples) > most):
        return None
    region, result = casting_region(graph, node, cast, factor)
    if not target.has_tile_kernels(region.attrs([result]), _LAYERS):
        return None
    return _Inlined(cast, region, result, made)


def casting_region(graph: Graph, node: Node, cast: Node, factor: str) -> tuple[Region, Part]:
    """The region of a dense layer, or of its gradient in the other factor, that casts `factor`, "data" or
    "weight", in tiles; and its result.
    """
    named, is_forward, axes = node.named_inputs, node.op is FullyConnected, _AXES[factor]
    weight = named["weight"] if "weight" in named else output(node, "d_weight")
    head = Entry(node) if is_forward else named["d_out"]
    (rows, width), dtype = graph.shapes[weight], graph.dtypes[Entry(cast)]
    count = prod(graph.shapes[head][:-1])
    shapes = {"data": (count, width), "weight": (rows, width), "bias": (rows,), "d_out": (count, rows)}
    tiles = batch_cast_tiles(count, width) if factor == "data" else weight_cast_tiles(rows, width)
    region = Region(graph, (tiles,))
    wide = region.input(cast.inputs[0], ROWS, shapes[factor])
    narrow = TileArray(shapes[factor], dtype, ROWS)
    reads = {factor: region.call(Cast, cast.attrs, {"data": wide}, {"out": narrow})["out"]}
    reads |= {n: region.input(e, axes[n], shapes[n]) for n, e in named.items() if n != factor}
    layer, op = FullyConnected.Attrs(num_hidden=rows, no_bias="bias" not in named), node.op
    assert op is not None
    if is_forward:
        out = TileArray((count, rows), dtype, axes["out"], given=graph.shapes[Entry(node)])
        return region, region.call(op, layer, reads, {"out": out})["out"]
    of = "data" if factor == "weight" else "weight"
    total = TileArray(shapes[of], float32, WHOLE)
    sums = region.call(op, layer, reads, {f"d_{of}": total})[f"d_{of}"]
    if of == "weight":
        return region, sums
    rounded = TileArray(shapes[of], dtype, WHOLE, given=graph.shapes[output(node, "d_data")])
    return region, region.call(Cast, cast.attrs, {"data": sums}, {"out": rounded}, level=0)["out"]
