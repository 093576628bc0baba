"""Updates fused into the gradient of a dense layer with an activation prologue, in the same tiles.

    d_h, d_weight = tiles of (d_out, weight, h)
    update(weight, d_weight, states)                     becomes
    d_h = tiles of (d_out, h, weight, states)

In mixed precision the gradient is computed from a copy of the weight that is cast to 16 bits; the region
casts tiles of the weight itself. The conditions are those of `fusible_updates.py`.
"""

from __future__ import annotations

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ...fused.elementwise import FusedElementwiseGradient
from ...fused.tiled import TiledGradient, TiledUpdate
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .activation_prologue import FUSED, gradient_region, LAYER
from .fusible_updates import fusible_updates
from .region import Part, Region

_GRADIENTS = (FullyConnected.grad_op, FusedElementwiseGradient, FullyConnected.grad_op)


@graph_pass(Stage.STEP, after=("activation_prologue",), anchors=(TiledGradient,))
def prologue_updates(step: Step, target: Target) -> Step:
    """Updates fused into a gradient with a prologue. O(inputs)."""
    found: dict[Node, tuple[Node, Region, list[Part]]] = {}
    for update in _updates(step):
        region, results = _region(step.graph, update)
        if target.has_tile_kernels(region.attrs(results), (*LAYER, *FUSED, update.op)):
            found[update.inputs[1].node] = update, region, results

    def add(made: Rewriter, node: Node) -> None:
        update, region, results = found[node]
        new = region.node(TiledUpdate, results, update, made)
        made.node_of |= {update: new, node: new}
        made.order.append(new)
        made.put(Entry(node), Entry(new))

    return step.substituted(found, add, gone={update for update, *_ in found.values()})


def _updates(step: Step) -> list[Node]:
    """The updates that can be fused."""
    if not any(_is_gradient(n) for n in step.operators):
        return []
    found = []
    for update in fusible_updates(step):
        weight, gradient = update.inputs[:2]
        node = gradient.node
        if _is_gradient(node) and gradient.index == 1 and _origin(node.inputs[2]) == weight:
            found.append(update)
    return found


def _is_gradient(node: Node) -> bool:
    """True for the gradients of a layer with a prologue."""
    return node.op is TiledGradient and node.attrs.operators == _GRADIENTS


def _origin(entry: Entry) -> Entry:
    """The entry that `entry` is a cast of, or itself."""
    return entry.node.inputs[0] if entry.node.op is Cast else entry


def _region(graph: Graph, update: Node) -> tuple[Region, list[Part]]:
    """The region of both."""
    d_out, data, _ = update.inputs[1].node.inputs
    both = update.inputs[1].node.attrs.calls[1].attrs
    return gradient_region(graph, (d_out, update.inputs[0], data), (both.expression, both.constants), update)
