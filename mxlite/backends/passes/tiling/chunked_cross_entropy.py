"""Chunked linear cross-entropy: a classifier and its loss become one region, a tile of rows at a time.

A language model has a score for each word of its vocabulary at each position. As a whole these scores are
often the largest array of a step, and in backward there is a gradient as large. A loss that is a sum over
rows needs neither: once a tile of scores is there, its loss is known and so is its gradient, and both
products that read the gradient can be computed before the next tile:

    for rows [a, b)    scores = data[a:b] @ weight.T + bias      a tile, in the same bytes each time
                       loss, scores = cross entropy of scores and d_loss * its gradient
                       d_weight += scores.T @ data[a:b]     d_bias += sum of their rows
                       d_data[a:b] = scores @ weight

No product is computed twice. Gradients are made in the forward pass. For that d_loss has to be known before,
as behind MakeLoss: nodes that make it of nothing else move there, too. And gradients must be the step's own:
an array of the user's changes in the backward pass and not before. They stay until the updates that read
them, which for that come first in the backward pass. In 16 bits scores and their gradient are rounded once,
as they are as a whole; the loss and sums over tiles are float32, and the casts behind them are gone.

The gradient in the weight is there as a whole then, unlike with `gradient_updates`: it pays where rows are
more than the weight has columns. It always pays where a step with momentum does nothing else with the
gradient: momentum adds up gradients as well, and each tile's term may be added right there. The weight stays
unchanged until the last tile has read it:

    for rows [a, b)    scores = ...                                     as above
                       momentum = its factor * momentum - lr * (scores.T @ data[a:b])     the factor once
    weight += momentum

In mixed precision this region reads the float32 weight, which the step changes, and casts some rows of it at
a time, in a second loop around the products with the weight. A weight may not change in the forward pass, so
that the loss, and what follows from it there, are made in the backward pass. Forward alone shows what their
previews make, see `executor/plan/lower.py`. So what follows has to be little, and must do nothing but follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ....core.dtype import float32
from ....graph import Entry, Graph, NoAttrs, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.loss.cross_entropy import CrossEntropyWithGradient, softmax_cross_entropy
from ....ops.loss.wide_losses import WideSoftmaxCrossEntropy
from ....ops.nn.dense import FullyConnected
from ....ops.scratch import accumulator
from ....ops.shape.reshape import Reshape
from ...fused import tile_sizes
from ...fused.accumulated_state import AccumulatedStateAttrs, RestOfUpdate, StateTerm
from ...fused.tile_sizes import part_tiles, score_tiles, weight_cast_tiles
from ...fused.tiled import Axes, TileArray, Tiled, TiledGradient, TiledUpdate
from ...rewrite import graph_pass, Readers, Stage, Step
from ..target import Target
from .gradient_updates import is_elementwise
from .region import Part, Region

_LOSSES = (softmax_cross_entropy, WideSoftmaxCrossEntropy)
_SUMS = (FullyConnected.grad_op, StateTerm)

_FEW_BYTES = 1024
"""Most bytes of all that follows from a loss: it is computed twice where forward and backward are called
apart.
"""


@dataclass(frozen=True)
class LossMatch:
    """A loss, the classifier before it, the gradients of both, and the nodes that make d_loss, in order.

    `casts` widen gradients of the classifier, by their names. `update`: the step that goes into the region;
    `followers` are the nodes of the forward pass that read what is made of the loss then.
    """

    loss: Node
    dense: Node
    backward: tuple[Node, ...] = ()
    head: Entry | None = None
    sources: tuple[Node, ...] = ()
    casts: Mapping[Node, str] = field(default_factory=dict)
    update: Node | None = None
    followers: tuple[Node, ...] = ()

    @property
    def gone(self) -> set[Node]:
        """The nodes for which the region stands."""
        weight = self.dense.inputs[1].node
        joined = () if self.update is None else (self.update, *(() if weight.op is None else (weight,)))
        return {self.loss, self.dense, *self.backward, *self.casts, *joined}

    @property
    def gradients(self) -> dict[str, Entry]:
        """The entry for each gradient of the classifier."""
        made = {n: Entry(b, i) for b in self.backward[1:] for i, n in enumerate(b.output_names)}
        return made | {name: Entry(cast) for cast, name in self.casts.items()}


@graph_pass(Stage.STEP, anchors=_LOSSES)
def chunked_cross_entropy(step: Step, target: Target) -> Step:
    """A region for each classifier and its loss, where the weight's gradient pays or goes into its update.

    O(inputs * losses). Tiles are of 16-bit numbers where code can be generated for them.
    """
    graph = step.graph
    regions = {}
    for found in _matches(step, target.storable()):
        m = _with_update(step, found)
        whole = m.gradients.get("d_weight") if m.update is None else None
        if whole is not None and step.readers.wants(whole) and not _pays(graph, m.dense):
            continue
        region, results = loss_region(step, m)
        if not target.has_tile_kernels(region.attrs([*results.values()]), _SUMS):
            region, results = loss_region(step, m, in_parts=True)
        regions[m.loss] = m, region, results
    if not regions:
        return step
    matches = [m for m, _, _ in regions.values()]
    gone = {n for m in matches for n in m.gone}
    late = {n for m in matches for n in m.followers}
    late |= _shapers(step, {n for m in matches if m.update is not None for n in (*m.gone, *m.followers)})
    early = _early_updates(graph, matches) - gone
    placed = gone | early | {n for m in matches for n in m.sources}
    made = Rewriter(graph)
    fore, first, back = list(graph.variables), list[Node](), list[Node]()
    there: set[Node] = set()
    for node in step.operators:
        if node in regions:
            m, region, results = regions[node]
            for source in m.sources:
                if source not in there:  # several losses may have one
                    there.add(source)
                    made.keep(source, fore)
            op = Tiled if m.head is None else TiledGradient if m.update is None else TiledUpdate
            made.order = fore if m.update is None else first
            new = region.put(made, op, node, results)
            if m.update is not None:
                made.node_of[m.update] = new
        elif node not in placed:
            made.keep(node, first if node in late else fore if node in step.forward else back)
    for update in graph.effects:
        if update in early:
            made.keep(update, first)
    made.order = [*fore, *first, *back]
    return step.became(made.graph(), made.moved, len(fore) - len(graph.variables))


# -- the region --------------------------------------------------------------------------------------


def loss_region(step: Step, m: LossMatch, in_parts: bool = False) -> tuple[Region, dict[Entry, Part]]:
    """The region for a match, and what of it stands for which entries. in_parts: the gradient in the weight
    is computed some rows at a time, for kernels that cannot add to it.
    """
    graph, named = step.graph, m.dense.named_inputs
    (count, classes), dtype = graph.shapes[Entry(m.dense)], graph.dtypes[Entry(m.dense)]
    width, wide = graph.shapes[named["weight"]][1], accumulator(dtype)
    copy = named["weight"].node
    casts = m.update is not None and copy.op is not None
    if m.update is not None:
        named |= {"weight": m.update.inputs[0]}
    loops = [score_tiles(count, classes, dtype)]
    if casts or in_parts:
        loops.append(weight_cast_tiles(classes, width) if casts else part_tiles(classes))
    region, inner, sums = Region(graph, loops), 1 + casts, 1 + in_parts

    def axes(*at: int | None) -> Axes:
        return (*at, None)[: len(region.loops)]

    shapes = {"data": (count, width), "weight": (classes, width), "bias": (classes,)}
    where = {"data": axes(0), "weight": axes(None, 0), "bias": axes(None, 0)}
    given = {n: region.input(e, where[n], shapes[n]) for n, e in named.items()}
    narrow: Part | TileArray = TileArray(shapes["weight"], dtype, where["weight"])

    def weight() -> Part:
        """The rows of the weight for a product, in the type of data."""
        nonlocal narrow
        if not casts:
            return given["weight"]
        narrow = region.call(Cast, copy.attrs, {"data": given["weight"]}, {"out": narrow})["out"]
        return narrow

    scores = TileArray((count, classes), dtype, axes(0, 1))
    layer = FullyConnected.Attrs(classes, no_bias="bias" not in named)
    made = region.call(FullyConnected, layer, given | {"weight": weight()}, {"out": scores}, inner)["out"]
    reads = {"data": made, "label": region.input(m.loss.inputs[1], axes(0))}
    total = TileArray((1,), wide, axes(None), sums=True)
    if m.head is None:
        assert m.loss.op is not None
        return region, {Entry(m.loss): region.call(m.loss.op, m.loss.attrs, reads, {"out": total}, 1)["out"]}
    reads["head"] = region.input(m.head, axes(None))
    both = region.call(CrossEntropyWithGradient, NoAttrs(), reads, {"out": total, "d_data": scores}, 1)
    results = {Entry(m.loss): both["out"]}
    heads, whole = {"d_out": both["d_data"]}, {n: TileArray(s, wide, where[n]) for n, s in shapes.items()}
    plain, backward = FullyConnected.Attrs(classes, no_bias=True), FullyConnected.grad_op
    assert backward is not None
    wanted = {n: e for n, e in m.gradients.items() if step.readers.wants(e)}
    by_data = heads | {"data": given["data"]}
    if m.update is not None:
        how = AccumulatedStateAttrs(m.update.op, m.update.attrs)  # type: ignore[arg-type]
        state = region.input(m.update.inputs[2], where["weight"])
        hyper = region.input(m.update.inputs[3], axes(None))
        region.call(StateTerm, how, by_data | {"hyper": hyper}, {"term": state}, sums, keeps=how.growth[0])
    elif "d_weight" in wanted:
        made_of = region.call(backward, plain, by_data, {"d_weight": whole["weight"]}, sums)
        results[wanted["d_weight"]] = made_of["d_weight"]
    if "d_bias" in wanted:
        absent = {n: replace(whole[n], dtype=dtype) for n in ("data", "weight")}
        made_of = region.call(backward, layer, heads, {"d_bias": whole["bias"]}, 1, absent)
        results[wanted["d_bias"]] = made_of["d_bias"]
    if "d_data" in wanted:
        rows = replace(whole["data"], dtype=dtype, given=graph.shapes[wanted["d_data"]])
        product = whole["data"] if casts else rows
        by_weight = heads | {"weight": weight()}
        part = region.call(backward, plain, by_weight, {"d_data": product}, inner)["d_data"]
        if casts:
            part = region.call(Cast, copy.attrs, {"data": part}, {"out": rows}, 1)["out"]
        results[wanted["d_data"]] = part
    if m.update is not None:
        region.call(RestOfUpdate, how, {"weight": given["weight"], "state": state, "hyper": hyper}, {}, 0)
    return region, results


# -- what is fused -----------------------------------------------------------------------------------


def _matches(step: Step, narrow: Set[str]) -> list[LossMatch]:
    """The losses that can be fused; `narrow` are the types of 16 bits that tiles may have."""
    graph, readers, hidden = step.graph, step.readers, step.shown
    found = []
    for loss in step.forward:
        if loss.op not in _LOSSES:
            continue
        scores, dense = loss.inputs[0], loss.inputs[0].node
        if loss.inputs[1] in dense.inputs or len({*dense.inputs}) < len(dense.inputs):
            continue  # one array, of which a region has two kinds of tiles
        if dense.op is not FullyConnected or scores in hidden or not _is_large(graph, dense, narrow):
            continue
        if graph.dtypes[Entry(loss)] != accumulator(graph.dtypes[scores]):
            continue  # a sum of 16 bits
        of_loss = [n for n in readers.all(scores) if n is not loss]
        if not of_loss:
            found.append(LossMatch(loss, dense))
            continue
        if len(of_loss) > 1 or of_loss[0].forward is not loss:
            continue
        (by_loss,) = of_loss
        d_scores = Entry(by_loss)
        by_dense = readers.only(d_scores)
        if by_dense is None or by_dense.forward is not dense:
            continue
        casts = _casts(graph, by_dense, readers)
        if casts is None or any(e in hidden for n in (by_dense, *casts) for e in n.outputs):
            continue
        head = by_loss.named_inputs["d_out"]
        sources = _sources(step, head)
        if sources is not None:
            found.append(LossMatch(loss, dense, (by_loss, by_dense), head, sources, casts))
    return found


def _casts(graph: Graph, by_dense: Node, readers: Readers) -> dict[Node, str] | None:
    """The nodes that widen gradients of 16 bits; None where another one reads such a gradient."""
    found: dict[Node, str] = {}
    for name, e in zip(by_dense.output_names, by_dense.outputs):
        those: Sequence[Node] = readers.all(e)
        if name == "d_data" or not those or graph.dtypes[e] == accumulator(graph.dtypes[e]):
            continue
        if len(those) != 1 or those[0].op is not Cast.grad_op:
            return None
        (cast,) = those
        if graph.dtypes[Entry(cast)] != accumulator(graph.dtypes[e]):
            return None
        found[cast] = name
    return found


def _is_large(graph: Graph, dense: Node, narrow: Set[str]) -> bool:
    """True if scores are two tiles or more, of a type that tiles may have."""
    rows, classes = graph.shapes[Entry(dense)]
    dtype = graph.dtypes[Entry(dense)]
    kinds = {graph.dtypes[e] for e in dense.inputs}
    if kinds != {dtype} or not rows or not classes or (dtype.itemsize < 4 and dtype.name not in narrow):
        return False
    return tile_sizes.LEAST_SCORE_ROWS <= score_tiles(rows, classes, dtype).each < rows


def _pays(graph: Graph, dense: Node) -> bool:
    """True if the weight's gradient and a tile are smaller than the scores."""
    rows, classes = graph.shapes[Entry(dense)]
    width, dtype = graph.shapes[dense.inputs[1]][1], graph.dtypes[Entry(dense)]
    wide = accumulator(dtype).itemsize // dtype.itemsize
    return rows >= wide * width + score_tiles(rows, classes, dtype).each


def _sources(step: Step, head: Entry) -> tuple[Node, ...] | None:
    """The nodes that make `head`, in order, if no variable and nothing of the forward pass does."""
    order: dict[Node, None] = {}
    stack = [(head.node, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in order:
            if node.op is None or node in step.forward or not step.shown.isdisjoint(node.outputs):
                return None
            if node.op.signature.services & {"rng", "state"}:  # what its forward node was given
                return None
            stack.append((node, True))
            stack += [(e.node, False) for e in node.inputs]
    return tuple(order)


def _early_updates(graph: Graph, found: Sequence[LossMatch]) -> set[Node]:
    """Updates of which all but the gradient is there, and whose weight nobody else reads."""
    made = {e for m in found for e in m.gradients.values()}
    gone = {n for m in found for n in m.gone}
    used = {e for n in graph.nodes if n not in gone for e in n.inputs}
    uses: dict[Entry, int] = {}
    for node in graph.nodes:
        if node not in gone and not (node.op is Cast and Entry(node) not in used):  # a copy for those
            for e in node.inputs:
                uses[e] = uses.get(e, 0) + 1
    return {
        n
        for n in graph.effects
        if len(n.inputs) > 1
        and n.inputs[1] in made
        and uses.get(n.inputs[0]) == 1
        and all(e.node.op is None for i, e in enumerate(n.inputs) if i != 1)
    }


# -- an update that goes into the region -------------------------------------------------------------


def _with_update(step: Step, m: LossMatch) -> LossMatch:
    """The match with the update of its weight, if that can go into its region."""
    gradient = m.gradients.get("d_weight")
    if gradient is None:
        return m
    update = step.readers.only(gradient)
    if update is None or update not in step.graph.effects or update.inputs[1] != gradient:
        return m
    followers = _followers(step.forward, m.loss)
    if not _suits(step, m, update) or not _is_little(step.graph, followers):
        return m
    return replace(m, update=update, followers=tuple(followers))


def _suits(step: Step, m: LossMatch, update: Node) -> bool:
    """True if the step can use a gradient part by part, and reads only numbers that are there."""
    graph, (weight, gradient, *others) = step.graph, update.inputs
    if not is_elementwise(update.op) or len(others) != 2 or graph.nbytes(gradient) < tile_sizes.LEAST_UPDATE:
        return False
    formula: Any = update.op.step_of  # type: ignore[union-attr]
    copy, products = m.dense.inputs[1], {m.dense, *m.backward}
    is_narrowed = copy.node.op is Cast and copy.node.inputs == (weight,)
    if formula.growth(update.attrs) is None or (weight != copy and not is_narrowed):
        return False
    own = {copy: products, weight: {copy.node, update}} if is_narrowed else {weight: {*products, update}}
    if not step.readers.stay_inside(own | {others[0]: {update}}):
        return False
    if any(e.node.op is not None for e in (weight, *others)):
        return False
    return all(graph.dtypes[e] == float32 for e in (weight, gradient, others[0]))


def _followers(forward: Mapping[Node, None], loss: Node) -> list[Node]:
    """The nodes of the forward pass that read what is made of the loss, in their order."""
    found = {loss: None}
    for node in forward:
        if any(e.node in found for e in node.inputs):
            found[node] = None
    return list(found)[1:]


def _is_little(graph: Graph, nodes: Sequence[Node]) -> bool:
    """True if these nodes compute few bytes, and can do so again."""
    nbytes = sum(graph.nbytes(e) for n in nodes for e in n.outputs)
    return nbytes <= _FEW_BYTES and all(map(_is_pure, nodes))


def _is_pure(node: Node) -> bool:
    """True if a node does nothing but compute its outputs from its inputs."""
    op = node.op
    assert op is not None
    if not op.recomputable or op.mutated(node.attrs) or op.has_stream(node.attrs):
        return False
    return "state" not in op.signature.services


def _shapers(step: Step, late: set[Node]) -> set[Node]:
    """Reshapes of forward arrays that only `late` nodes read, and that would be kept."""
    found: set[Node] = set()
    if not late:
        return found
    for node in reversed(list(step.forward)):
        if node.op is Reshape and step.readers.stay_inside({Entry(node): late | found}):
            found.add(node)
    return found
