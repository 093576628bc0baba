"""Prologue fusion: a dense layer applies the activation before it to a tile of what it multiplies.

    h -> gelu -> g -> FullyConnected                      tiles of h -> gelu -> FullyConnected
              g, d_out -> gradient in the weight          tiles of d_out, weight, h -> both gradients
    weight, d_out -> d_g;  d_g, h -> gradient of gelu

    for rows [p, q), columns [a, b)    g = gelu(h[p:q, a:b])          a block, small enough for the cache
                                       out[p:q] += g @ weight[:, a:b].T

    for columns [a, b), rows [p, q)    slope = d_out[p:q] @ weight[:, a:b]
                                       g, d_h[p:q, a:b] = gelu(h[p:q, a:b]), slope * its slope there
                                       d_weight[:, a:b] += d_out[p:q].T @ g

The gradient of GELU, SiLU and the like reads h; g is needed only by the dense layer behind it, forwards and
for the gradient in its weight. Here neither g nor its gradient is ever there as a whole, and the gradient in
h may overwrite h. A rectifier, whose gradient needs but g, stays as it is. g must have no other reader, and
be no output. The gradient of the bias becomes a node of its own.

In 16 bits every number is rounded once: the output is computed over all columns at once, the gradient in the
weight over all rows, or accumulated in float32 if an update follows in the region (`gradient_updates.py`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Op, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ....te.computation import Computation, pruned
from ...elementwise.formula import write
from ...fused import tile_sizes
from ...fused.computation import ComputationAttrs, FUSED, FusedComputation, FusedComputationGradient
from ...fused.tile_sizes import block_tiles
from ...fused.tiled import TileArray, Tiled, TiledGradient, TileLoop
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..remat.remat_candidates import is_stage
from ..target import Target
from .region import Part, put_bias_gradient, Region

LEAST_BYTES = 512 * 1024
"""Least bytes of the activation's result: smaller ones stay in the cache anyway."""

LEAST_COLUMNS = 128
"""Least columns of it. A step of ConvNeXt, Swin and ViT with 128 to 256 was measured to take as long as it
does without, or a few percent less."""

LAYER = (FullyConnected, FullyConnected.grad_op)


class _PrologueMatch(NamedTuple):
    """An activation, the layer behind it, and the nodes that compute their gradients.

    by_weight computes d_weight and perhaps d_bias, by_data d_data, slope the gradient in the activation's
    data.
    """

    activation: Node
    layer: Node
    by_weight: Node
    by_data: Node
    slope: Node


@graph_pass(Stage.STEP, after=("split_gradients",), anchors=(FullyConnected,))
def activation_prologue(step: Step, target: Target) -> Step:
    """Dense layers that apply an activation. O(inputs)."""
    if not step.has_backward:
        return step
    graph = step.graph
    at: dict[Node, _PrologueMatch] = {}
    regions: dict[Node, tuple[_Made, _Made]] = {}
    for m in _matches(step):
        if (made := _regions(graph, m, target)) is not None:
            at |= dict.fromkeys((m.layer, m.by_weight, m.by_data), m)
            regions[m.layer] = made
    gone = {n for m in at.values() for n in (m.activation, m.slope)}
    place = {n: i for i, n in enumerate(graph.nodes)} if at else {}

    def add(made: Rewriter, node: Node) -> None:
        m = at[node]
        (forward, (out,)), (backward, results) = regions[m.layer]
        if node is m.layer:
            forward.put(made, Tiled, node, {Entry(node): out})
            return
        if node is min(m.by_weight, m.by_data, key=place.__getitem__):
            like = replace(m.layer, name=f"{m.layer.name}_backward_data", annotations={})
            entries = output(m.slope, "d_data"), output(m.by_weight, "d_weight")
            backward.put(made, TiledGradient, like, dict(zip(entries, results, strict=True)))
        if node is m.by_weight:
            put_bias_gradient(made, node, step)

    return step.substituted(at, add, gone)


def _matches(step: Step) -> list[_PrologueMatch]:
    """The layers that can have a prologue, in the order of their activations."""
    graph, readers = step.graph, step.readers
    backward_of: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.forward is not None:
            backward_of.setdefault(node.forward, []).append(node)
    matches = []
    for node in graph.nodes:
        if not loadable(node.op, node.attrs) or node.forward is not None or is_stage(node):
            continue
        made = Entry(node)
        found = readers.all(made)
        if made in step.shown or len(found) != 2 or graph.shapes[made] != graph.shapes[node.inputs[0]]:
            continue
        layer, by_weight = found
        if layer.op is not FullyConnected or layer.inputs.count(made) != 1 or layer.inputs[0] != made:
            continue
        parts = backward_of.get(layer, [])
        by_data = [n for n in parts if n is not by_weight]
        if by_weight not in parts or by_weight.absent != {"weight"} or len(by_data) != 1:
            continue
        if by_data[0].absent != {"data"}:
            continue
        named = [n.named_inputs for n in (by_weight, by_data[0])]
        if named[0]["data"] != made or named[0]["d_out"] != named[1]["d_out"]:
            continue
        slope = readers.only(output(by_data[0], "d_data"))
        if slope is None or slope.forward is not node or slope.op is not node.op.grad_op:  # type: ignore[union-attr]
            continue
        if not readers.wants(output(by_weight, "d_weight")):
            continue
        matches.append(_PrologueMatch(node, layer, by_weight, by_data[0], slope))
    return matches


def loadable(op: type[Op] | None, attrs: Any) -> bool:
    """True if `op` can be the prologue of a dense layer: one array in, one out, and a gradient computed from
    `data` that may overwrite the incoming gradient.
    """
    if op is None or op.grad_op is None or op.input_names(attrs) != ("data",):
        return False
    if op.output_names(attrs) != ("out",) or op.random or not op.recomputable:
        return False
    grad = op.grad_op
    return "data" in grad.input_names(attrs) and "d_out" in grad.in_place_options(attrs).get("d_data", ())


_Made = tuple[Region, list[Part]]


def _regions(graph: Graph, m: _PrologueMatch, target: Target) -> tuple[_Made, _Made] | None:
    """The regions of the layer and of its gradients with their results; None where they bring no gain."""
    data = m.activation.inputs[0]
    named, (rows, columns) = m.by_data.named_inputs, graph.shapes[m.layer.inputs[1]]
    dtype, entries = graph.dtypes[data], (data, *m.layer.inputs, named["d_out"], named["weight"])
    if {graph.dtypes[e] for e in entries} != {dtype} or columns < LEAST_COLUMNS or not rows:
        return None
    if graph.nbytes(data) < LEAST_BYTES:
        return None
    both = _with_slope(graph, m.activation, columns)
    if both is None:
        return None
    forward = _forward(graph, m)
    backward = gradient_region(graph, (named["d_out"], named["weight"], data), both)
    for region, results in (forward, backward):
        if not target.has_tile_kernels(region.attrs(results), (*LAYER, m.activation.op, *FUSED)):
            return None
    return forward, backward


def _with_slope(graph: Graph, activation: Node, columns: int) -> ComputationAttrs | None:
    """The activation and its gradient as one computation of the incoming gradient and the data, matrices;
    None if there is no formula.
    """
    op, a, e = activation.op, activation.attrs, activation.inputs[0]
    assert op is not None and op.grad_op is not None
    t, dtype, shape = Computation(), graph.dtypes[e], (prod(graph.shapes[e]) // columns, columns)
    d, data = t.input("arg0", shape), t.input("arg1", shape)
    made = write(t, op, a, {"data": data}, dtype)
    if made is None:
        return None
    known = {"d_out": d, "data": data, **made}
    back = write(t, op.grad_op, a, {n: known[n] for n in op.grad_op.input_names(a)}, dtype)
    if back is None:
        return None
    nodes, numbers = pruned(t, [made["out"].number, back["d_data"].number])
    return ComputationAttrs(nodes, numbers, (shape, shape), (dtype, dtype), (dtype, dtype))


def _blocks(shape: tuple[int, int], block: tuple[int | None, int | None]) -> tuple[TileLoop, TileLoop]:
    """Loops over rows and columns."""
    return (
        block_tiles(shape[0], block[0], tile_sizes.MULTIPLE, "row"),
        block_tiles(shape[1], block[1], tile_sizes.BLOCK_COLUMNS, "column"),
    )


def _forward(graph: Graph, m: _PrologueMatch) -> _Made:
    """The region of the layer, rows outside and columns inside."""
    data, (_, weight, *bias) = m.activation.inputs[0], m.layer.inputs
    rows, columns = graph.shapes[weight]
    dtype, made = graph.dtypes[data], graph.shapes[Entry(m.layer)]
    count = prod(made[:-1])
    most, width = tile_sizes.FORWARD_BLOCK if dtype.itemsize > 2 else tile_sizes.NARROW_FORWARD_BLOCK
    wanted = min(most, tile_sizes.ROWS_PER_OUTPUT * rows), width
    region = Region(graph, _blocks((count, columns), wanted))
    parts = {"data": region.input(data, (0, 1), (count, columns)), "weight": region.input(weight, (None, 1))}
    out = TileArray((count, rows), dtype, (0, None), given=made)
    layer = FullyConnected.Attrs(rows, no_bias=True)
    initial = None
    if bias:
        row = region.input(bias[0], (None, None))
        if region.loops[1].num_tiles == 1:
            layer, parts["bias"] = replace(layer, no_bias=False), row
        else:  # products of blocks of columns are added to rows of it
            copy = ComputationAttrs((("input", "arg0", (rows,)),), (0,), ((count, rows),), (dtype,), (dtype,))
            initial = region.call(FusedComputation, copy, {"arg0": row}, {"output0": out}, level=0)["output0"]
    block = TileArray((count, columns), dtype, (0, 1))
    assert m.activation.op is not None
    reads = {"data": parts["data"]}
    parts["data"] = region.call(m.activation.op, m.activation.attrs, reads, {"out": block})["out"]
    return region, [region.call(FullyConnected, layer, parts, {"out": initial or out})["out"]]


def gradient_region(
    graph: Graph,
    entries: tuple[Entry, Entry, Entry],
    both: ComputationAttrs,
    update: Node | None = None,
) -> _Made:
    """The region of a layer's gradients in data and weight, columns outside and rows inside; `entries` are
    d_out, weight and data. With an update of the weight, which `weight` is then, the gradient in it is no
    result.
    """
    d_out, weight, data = entries
    rows, columns = graph.shapes[weight]
    dtype, shape = graph.dtypes[data], graph.shapes[data]
    count = prod(shape) // columns
    is_narrow = dtype.itemsize == 2
    wanted: tuple[int | None, int | None] = (
        tile_sizes.NARROW_BACKWARD_BLOCK if is_narrow else tile_sizes.BACKWARD_BLOCK
    )
    if is_narrow and update is None:
        wanted = (None, wanted[1])
    height, width = _blocks((count, columns), wanted)
    region = Region(graph, (width, height))
    d = region.input(d_out, (None, 0), (count, rows))
    before = region.input(data, (1, 0), (count, columns))
    factor = region.input(weight, (1, None))
    if graph.dtypes[weight] != dtype:
        narrow = TileArray((rows, columns), dtype, (1, None))
        factor = region.call(Cast, Cast.Attrs(dtype=dtype.name), {"data": factor}, {"out": narrow}, 1)["out"]
    layer, grad = FullyConnected.Attrs(rows, no_bias=True), FullyConnected.grad_op
    assert grad is not None
    block = TileArray((count, columns), dtype, (1, 0))
    slope = region.call(grad, layer, {"d_out": d, "weight": factor}, {"d_data": block})["d_data"]
    made = region.call(
        FusedComputationGradient,
        both,
        {"arg0": slope, "arg1": before},
        {"output0": block, "output1": replace(block, given=None if shape == block.shape else shape)},
    )
    total = TileArray((rows, columns), float32 if update else dtype, (1, None))
    reads = {"d_out": d, "data": made["output0"]}
    gradient = region.call(grad, layer, reads, {"d_weight": total})["d_weight"]
    if update is None:
        return region, [made["output1"], gradient]
    region.update(update, gradient, (1, None), level=1)
    return region, [made["output1"]]
