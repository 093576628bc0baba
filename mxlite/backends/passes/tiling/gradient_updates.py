"""Updates fused into the gradient of their weight, which is never there as a whole.

    for rows [a, b)    gradient = d_out[:, a:b].T @ data
                       weight[a:b], states[a:b] = update(weight[a:b], gradient, states[a:b])

| gradient of             | tiles                                                                         |
|-------------------------|-------------------------------------------------------------------------------|
| a dense layer           | rows of the weight                                                            |
| one with a prologue     | columns, as in `activation_prologue.py`; the region casts the weight itself   |
| a convolution           | filters                                                                       |
| recurrent layers        | rows of each matrix, from the gates' gradients, see `rnn_update.py`           |

A weight's gradient has as many bytes as the weight. As a whole it is written to memory and read back by the
update, and at the peak of a step it is live besides weight and states.

The fusion needs a gradient with one term and one reader, and an update that changes each element by itself:
neither a norm of the whole gradient nor a loss scale that looks at it first. Nor may d_out and data have to
wait for it: the weight may change once the gradient in data has been computed from it, and that comes first
where the weight is larger than data, see `split_gradients`. And the gradient has to be large enough for tiles
to pay. The gradient of a dense layer's bias becomes a node of its own; one of a convolution's, which is
computed with that in the weight, keeps both as they are. Recurrent layers must have no dropout between them,
whose inputs would have to be drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Op, Rewriter
from ....ops import ALL
from ....ops.elementwise.cast import Cast
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast
from ....ops.nn.dense import FullyConnected
from ....ops.nn.normed_convolution import NormedConvolutionWeightGradient
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import RnnKeepingGates
from ...fused import tile_sizes
from ...fused.computation import FUSED, FusedComputationGradient
from ...fused.rnn_update import GateGradientsAttrs, RnnGateGradients, RnnUpdate, RNNUpdateAttrs
from ...fused.tile_sizes import DEEP, filter_tiles, update_tiles
from ...fused.tiled import TileArray, TiledGradient, TiledUpdate
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .activation_prologue import gradient_region, LAYER
from .region import COLUMNS, Part, put_bias_gradient, Region, ROWS, WHOLE


def is_elementwise(op: Any) -> bool:
    """True if `op` is an optimizer's step of a program that changes each element by itself."""
    return getattr(op, "form", "") == "fused" and "whole" not in vars(op.step_of)


@dataclass(frozen=True)
class _Fusion:
    """An update in the region of the node that computes its gradient.

    region: None for recurrent layers, which have one for each matrix. results: the other outputs of that node
    that the region computes. needs: operators; there must be kernels for tiles of them.
    """

    update: Node
    region: Region | None = None
    results: Mapping[Entry, Part] = field(default_factory=dict)
    needs: tuple[type[Op] | None, ...] = ()

    def is_tuned(self, target: Target) -> bool:
        """True if there are the kernels that it needs."""
        if not self.needs or self.region is None:
            return True
        return target.has_tile_kernels(self.region.attrs([*self.results.values()]), self.needs)

    def add(self, made: Rewriter) -> None:
        """Add the region."""
        if self.region is None:
            _add_recurrent(made, self.update)
            return
        made.node_of[self.update] = self.region.put(made, TiledUpdate, self.update, self.results)


@graph_pass(
    Stage.STEP,
    after=("split_gradients", "norm_prologue", "inline_gradient_casts", "activation_prologue"),
    anchors=tuple(filter(is_elementwise, ALL)),
)
def gradient_updates(step: Step, target: Target) -> Step:
    """The step whose updates are fused into gradients. O(inputs).

    The region of a dense layer that reads nothing of the forward pass, nor anything that another update
    changes, runs where the update did: a plan may put it anywhere.
    """
    written = {e for n in step.graph.effects for e in changed(n)}
    at: dict[Node, _Fusion] = {}
    fused: set[Node] = set()
    for update in fusible_updates(step):
        node = update.inputs[1].node
        fuse = _FAMILIES.get(node.op)
        fusion = None if fuse is None else fuse(step, update, target)
        if fusion is None or not fusion.is_tuned(target):
            continue
        moves = fuse is _dense and all(e.node not in step.forward and e not in written for e in node.inputs)
        at[update if moves else node] = fusion
        fused |= {node, update}

    def add(made: Rewriter, node: Node) -> None:
        if node.op is FullyConnected.grad_op:
            put_bias_gradient(made, node, step)
        if node in at:
            at[node].add(made)

    return step.substituted(fused, add)


def fusible_updates(step: Step) -> list[Node]:
    """Updates that change each element by itself, with a gradient that nobody else reads, of a weight that
    nobody reads after the gradient is computed. In the order of `effects`.
    """
    graph = step.graph
    place, last = {n: i for i, n in enumerate(graph.nodes)}, last_readers(graph)
    found = []
    for update in graph.effects:
        if not is_elementwise(update.op):
            continue
        weight, gradient = update.inputs[:2]
        if step.readers.only(gradient) is not update or gradient.node in step.forward:
            continue
        reader = last.get(weight)
        if reader is None or place[reader] <= place[gradient.node]:
            found.append(update)
    return found


def last_readers(graph: Graph) -> dict[Entry, Node]:
    """The last node that reads an entry, or a copy of it. No update reads what it changes."""
    updates = set(graph.effects)
    origin: dict[Entry, Entry] = {}  # of a 16-bit copy of a weight, which may be recomputed
    last: dict[Entry, Node] = {}
    for node in graph.nodes:
        own = changed(node) if node in updates else frozenset()
        last.update((origin.get(e, e), node) for e in node.inputs if e not in own)
        if len(node.inputs) == 1:
            origin.update((e, node.inputs[0]) for e in node.outputs)
    return last


def changed(update: Node) -> frozenset[Entry]:
    """The entries that an update changes: a weight and its states."""
    assert update.op is not None
    names = update.op.mutated(update.attrs)
    return frozenset(e for name, e in zip(update.input_names, update.inputs) if name in names)


def _dense(step: Step, update: Node, target: Target) -> _Fusion | None:
    """The update in tiles of rows of a dense layer's weight."""
    graph, gradient = step.graph, update.inputs[1]
    node, named = gradient.node, gradient.node.named_inputs
    count = prod(graph.shapes[named["d_out"]]) // graph.shapes[gradient][0]
    if gradient != output(node, "d_weight") or not _is_large(graph, gradient, is_deep=count >= DEEP):
        return None
    if step.readers.wants(output(node, "d_data")):
        return None  # one node for both: this backend does not split gradients
    return _Fusion(update, dense_region(graph, update))


def dense_region(graph: Graph, update: Node) -> Region:
    """The region of the update of a dense layer's weight and its gradient."""
    named, (rows, columns) = update.inputs[1].node.named_inputs, graph.shapes[update.inputs[0]]
    count, dtype = prod(graph.shapes[named["d_out"]]) // rows, graph.dtypes[named["d_out"]]
    region = Region(graph, (update_tiles(rows, columns, count, dtype),))
    reads = {
        "d_out": region.input(named["d_out"], COLUMNS, (count, rows)),
        "data": region.input(named["data"], WHOLE, (count, columns)),
    }
    layer, op = FullyConnected.Attrs(rows, no_bias=True), FullyConnected.grad_op
    assert op is not None
    made = region.call(op, layer, reads, {"d_weight": TileArray((rows, columns), dtype, ROWS)})
    region.update(update, made["d_weight"])
    return region


def _convolution(step: Step, update: Node, target: Target) -> _Fusion | None:
    """The update in tiles of a convolution's filters."""
    gradient = update.inputs[1]
    node = gradient.node
    if node.op is ConvolutionChannelsLast.grad_op and "weight" not in node.absent:
        return None  # one node for both
    others = (e for e in node.outputs if e != gradient)
    if not _is_large(step.graph, gradient) or any(map(step.readers.wants, others)):
        return None
    region = convolution_region(step.graph, update, target.threads())
    return None if region is None else _Fusion(update, region, needs=(node.op,))


def convolution_region(graph: Graph, update: Node, threads: int) -> Region | None:
    """The region of the update of a convolution's weight and its gradient; None if there are no tiles of one
    size.
    """
    node, weight = update.inputs[1].node, graph.shapes[update.inputs[0]]
    assert node.op is not None
    loop = filter_tiles(weight, threads)
    if loop is None or node.attrs.num_group != 1:
        return None
    region, named = Region(graph, (loop,)), node.named_inputs
    is_normed = node.op is NormedConvolutionWeightGradient
    head = "grad" if is_normed else "d_out"
    filters = len(graph.shapes[named[head]]) - 1
    reads = {n: region.input(e, (filters,) if n == head else WHOLE) for n, e in named.items()}
    narrow = {"wide": False} if is_normed else {}
    attrs = replace(node.attrs, no_bias=True, **narrow)  # in the type of the data, as a tile of it is small
    made = {"d_weight": TileArray(weight, graph.dtypes[named[head]], ROWS)}
    region.update(update, region.call(node.op, attrs, reads, made)["d_weight"])
    return region


def _prologue(step: Step, update: Node, target: Target) -> _Fusion | None:
    """The update in the tiles of a dense layer with an activation prologue."""
    weight, gradient = update.inputs[:2]
    node = gradient.node
    if node.attrs.operators != _PROLOGUE or gradient.index != 1:
        return None
    d_out, data, factor = node.inputs
    if weight not in (factor, *(factor.node.inputs if factor.node.op is Cast else ())):
        return None
    both = node.attrs.calls[1].attrs
    region, (d_data,) = gradient_region(step.graph, (d_out, weight, data), both, update)
    assert update.op is not None
    return _Fusion(update, region, {Entry(node): d_data}, needs=(*LAYER, *FUSED, update.op))


def _recurrent(step: Step, update: Node, target: Target) -> _Fusion | None:
    """The update of the parameters of recurrent layers whose gates are kept."""
    graph, gradient = step.graph, update.inputs[1]
    node, named = gradient.node, gradient.node.named_inputs
    if gradient != output(node, "d_parameters") or not _is_large(graph, gradient, is_deep=False):
        return None
    if RNN.draws(node.attrs, True) or node.attrs.use_sequence_length:
        return None
    wide = (named["parameters"], named["gates"], *update.inputs[:2])
    return _Fusion(update) if all(graph.dtypes[e] == float32 for e in wide) else None


def _add_recurrent(made: Rewriter, update: Node) -> None:
    """Add the gates' gradients, and the update that reads them."""
    node, graph = update.inputs[1].node, made.old
    named = dict(zip(node.input_names, made.inputs(node)))
    heads = tuple(n for n in ("d_out", "d_state_output", "d_statecell_output") if n in named)
    attrs = GateGradientsAttrs(node.attrs, graph.shapes[node.named_inputs["data"]], heads)
    ins = tuple(named[n] for n in RnnGateGradients.input_names(attrs))
    gradients = made.replace(node, Node(RnnGateGradients, attrs, ins, node.name))
    gates, sums = (output(gradients, n) for n in ("d_gates", "d_biases"))
    count, _, _, width = made.shapes[gates] = made.shapes[named["gates"]]
    made.shapes[sums] = (count, width)
    made.dtypes[gates] = made.dtypes[sums] = float32
    named |= {"d_gates": gates, "d_biases": sums}
    weight, _, *others = made.inputs(update)
    assert update.op is not None
    how = RNNUpdateAttrs(update.op, update.attrs, node.attrs)
    makers = tuple(named[n] for n in RnnUpdate.makers if n in named)
    made.replace(update, Node(RnnUpdate, how, (*makers, weight, *others), update.name))


def _is_large(graph: Graph, gradient: Entry, is_deep: bool = True) -> bool:
    """True if a gradient is worth a region; `is_deep`: its product is deep."""
    least = tile_sizes.LEAST_DEEP_UPDATE if is_deep else tile_sizes.LEAST_UPDATE
    return graph.nbytes(gradient) >= least


_PROLOGUE = (FullyConnected.grad_op, FusedComputationGradient, FullyConnected.grad_op)

_FAMILIES: Mapping[type[Op] | None, Callable[[Step, Node, Target], _Fusion | None]] = {
    FullyConnected.grad_op: _dense,
    ConvolutionChannelsLast.grad_op: _convolution,
    NormedConvolutionWeightGradient: _convolution,
    TiledGradient: _prologue,
    RnnKeepingGates.grad_op: _recurrent,
}
"""The fusion for each operator that computes a gradient; None: there is none."""
