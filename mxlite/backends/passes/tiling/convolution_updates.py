"""Updates fused into the gradient of a convolution in its weight, which is never there as a whole.

    for filters [a, b)    gradient = of the convolution of data with those, from d_out[..., a:b]
                          weight[a:b], states[a:b] = update(weight[a:b], gradient, states[a:b])

The conditions are those of `dense_updates.py`. A gradient in the bias is computed with that in the weight,
and keeps both as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast
from ....ops.nn.normed_convolution import NormedConvolutionWeightGradient
from ...fused.tile_sizes import filter_tiles
from ...fused.tiled import TileArray, TiledUpdate
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .dense_updates import DEEP_LEAST_BYTES
from .fusible_updates import fuse_update, fusible_updates
from .region import Region, ROWS, WHOLE

LEAST_BYTES = DEEP_LEAST_BYTES
"""Least bytes of a gradient that is worth a region."""


@graph_pass(
    Stage.STEP,
    after=("split_gradients", "norm_prologue", "inline_convolution_casts", "inline_gradient_casts"),
    anchors=(ConvolutionChannelsLast.grad_op, NormedConvolutionWeightGradient),
)
def convolution_updates(step: Step, target: Target) -> Step:
    """Updates of convolutions' weights, each fused into its gradient. O(inputs)."""
    graph = step.graph
    joined: dict[Node, Node] = {}  # by the node that computes the gradient
    gone: dict[Node, Node] = {}
    for update in fusible_updates(step):
        gradient = update.inputs[1]
        made = gradient.node
        if made in step.forward or gradient not in graph.shapes or graph.nbytes(gradient) < LEAST_BYTES:
            continue
        others = [Entry(made, i) for i in range(made.num_outputs) if Entry(made, i) != gradient]
        if not _is_maker(made) or any(map(step.readers.wants, others)):
            continue
        region = _region(graph, made, update, target.threads())
        if region is not None and target.has_tile_kernels(region.attrs([]), (made.op,)):
            joined[made] = gone[update] = region.node(TiledUpdate, [], update, Rewriter(graph))
    if not joined:
        return step
    result = Rewriter(graph)
    result.node_of |= gone
    result.order += graph.variables  # weights and states: before where they stood
    result.order += [joined.get(n, n) for n in step.operators if n not in gone]
    return step.became(result.graph())


def _is_maker(node: Node) -> bool:
    """True for the gradient of a convolution in its weight, not in data."""
    if node.op is NormedConvolutionWeightGradient:
        return True
    return node.op is ConvolutionChannelsLast.grad_op and "weight" in node.absent


def _region(graph: Graph, made: Node, update: Node, threads: int) -> Region | None:
    """The region of an update and its gradient; None if there are no tiles of one size."""
    assert made.op is not None
    named, weight = made.named_inputs, update.inputs[0]
    shape = graph.shapes[weight]
    loop = filter_tiles(shape, threads)
    if loop is None or made.attrs.num_group != 1:
        return None
    region = Region(graph, (loop,))
    head = "d_out" if "d_out" in named else "grad"
    filters = len(graph.shapes[named[head]]) - 1
    reads = {n: region.input(e, (filters,) if n == head else WHOLE) for n, e in named.items()}
    narrow = {"wide": False} if made.op is NormedConvolutionWeightGradient else {}
    attrs = replace(made.attrs, no_bias=True, **narrow)  # in the type of the data, as a tile of it is small
    gradient = TileArray(shape, graph.dtypes[named[head]], ROWS)
    fuse_update(region, update, region.call(made.op, attrs, reads, {"d_weight": gradient})["d_weight"])
    return region
