"""Updates fused into the gradient of a dense layer, which is never there as a whole.

    for rows [a, b)    gradient = d_out[:, a:b].T @ data
                       weight[a:b], states[a:b] = update(weight[a:b], gradient, states[a:b])

A weight's gradient has as many bytes as the weight. As a whole it is written to memory and read back by the
update, and at the peak of a step it is live besides weight and states.

The fusion needs a gradient with one term and one reader, and an update that changes each element by itself:
neither a norm of the whole gradient nor a loss scale that looks at it first. Nor may d_out and data have to
wait for it: the weight may change once the gradient in data has been computed from it, and that comes first
where the weight is larger than data, see `split_gradients`. And the gradient has to be large enough for tiles
to pay. The gradient of a bias becomes a node of its own.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.nn.dense import FullyConnected
from ...fused.tile_sizes import DEEP, DEEP_UPDATE_BYTES, UPDATE_BYTES, update_tiles
from ...fused.tiled import TileArray, TiledUpdate
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .fusible_updates import changed, fuse_update, fusible_updates, UPDATES
from .region import COLUMNS, Region, ROWS, WHOLE

LEAST_BYTES, DEEP_LEAST_BYTES = 2 * UPDATE_BYTES, 4 * DEEP_UPDATE_BYTES
"""Least bytes of a gradient that is worth a region, the second for deep products. A smaller one stays in the
cache as a whole; in tiles, one of a deep product takes a few percent longer, which is to bring more than a
few bytes."""


class _UpdateMatch(NamedTuple):
    """An update and the node that computes its gradient.

    moves: True if the region of both reads nothing of the forward pass, nor anything that another update
    changes, so that a plan may put it anywhere.
    """

    update: Node
    gradient: Node
    moves: bool


@graph_pass(
    Stage.STEP,
    after=("split_gradients", "inline_gradient_casts", "inline_batch_casts", "activation_prologue"),
    anchors=UPDATES,
)
def dense_updates(step: Step, target: Target) -> Step:
    """Updates of dense layers, each fused into its gradient. O(inputs)."""
    found = _matches(step)
    of_update = {m.update: m for m in found}
    of_gradient = {m.gradient: m for m in found}

    def add(made: Rewriter, node: Node) -> None:
        if node in of_gradient:
            named = dict(zip(node.input_names, made.inputs(node)))
            if any(Entry(node, i) in step.read for i, n in enumerate(node.output_names) if n != "d_weight"):
                made.replace(node, replace(node, inputs=(named["d_out"],), absent=node.absent | {"data"}))
            if not of_gradient[node].moves:
                _fuse(made, of_gradient[node])
        elif of_update[node].moves:
            _fuse(made, of_update[node])

    return step.substituted(of_update | of_gradient, add)


def _matches(step: Step) -> list[_UpdateMatch]:
    """The updates that can be fused, in the order of `effects`."""
    graph, forward = step.graph, step.forward
    written = {e for n in graph.effects for e in changed(n)}
    found = []
    for update in fusible_updates(step):
        gradient = update.inputs[1]
        made = gradient.node
        if made.op is not FullyConnected.grad_op or gradient != output(made, "d_weight") or made in forward:
            continue
        if step.readers.wants(output(made, "d_data")):
            continue  # one node for both: this backend does not split gradients
        named = made.named_inputs
        is_deep = prod(graph.shapes[named["d_out"]]) // graph.shapes[gradient][0] >= DEEP
        if graph.nbytes(gradient) < (DEEP_LEAST_BYTES if is_deep else LEAST_BYTES):
            continue
        read = (named["d_out"], named["data"])
        moves = all(e.node not in forward and e not in written for e in read)
        found.append(_UpdateMatch(update, made, moves))
    return found


def _fuse(made: Rewriter, m: _UpdateMatch) -> None:
    """Add the region of an update and its gradient."""
    made.replace(m.update, _region(made.old, m).node(TiledUpdate, [], m.update, made))


def _region(graph: Graph, m: _UpdateMatch) -> Region:
    """The region of an update and its gradient."""
    named = m.gradient.named_inputs
    rows, columns = graph.shapes[m.update.inputs[0]]
    count = prod(graph.shapes[named["d_out"]]) // rows
    dtype = graph.dtypes[named["d_out"]]
    region = Region(graph, (update_tiles(rows, columns, count, dtype),))
    reads = {
        "d_out": region.input(named["d_out"], COLUMNS, (count, rows)),
        "data": region.input(named["data"], WHOLE, (count, columns)),
    }
    layer = FullyConnected.Attrs(rows, no_bias=True)
    made = {"d_weight": TileArray((rows, columns), dtype, ROWS)}
    assert FullyConnected.grad_op is not None
    fuse_update(region, m.update, region.call(FullyConnected.grad_op, layer, reads, made)["d_weight"])
    return region
