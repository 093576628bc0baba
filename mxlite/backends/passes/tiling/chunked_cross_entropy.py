"""A classifier and the cross-entropy behind it become one node, which makes scores a chunk of rows at a time.

    scores = FullyConnected(data, weight, bias)         loss, d_data, d_weight, d_bias =
    loss = softmax_cross_entropy(scores, label)             _dense_cross_entropy(data, weight, bias, label,
    ...                                                                          d_loss)
    d_scores, d_data, d_weight, d_bias                  ...

So scores and their gradient, one number for each row and class, are never there as a whole; see
`dense_cross_entropy.py`. Gradients are made in the forward pass, while a chunk is at hand. For that d_loss
has to be known before, as behind MakeLoss: nodes that make it of nothing else move there, too. And gradients
must be the step's own: an array of the user's changes in the backward pass and not before. They stay until
the updates that read them, which for that come first in the backward pass.

The gradient in the weight is there as a whole then, unlike with `gradient_updates`: it pays where rows are
more than the weight has columns. In mixed precision it is made in float32, and the casts behind it are gone;
scores are half as many bytes, and it takes twice the rows to pay. It always pays where that gradient goes
into the update chunk by chunk, see `cross_entropy_updates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.loss.cross_entropy import softmax_cross_entropy
from ....ops.loss.wide_losses import WideSoftmaxCrossEntropy
from ....ops.nn.dense import FullyConnected
from ....ops.scratch import accumulator
from ...fused import tile_sizes
from ...fused.dense_cross_entropy import DenseCrossEntropy, DenseLossAttrs
from ...fused.tile_sizes import score_tiles
from ...rewrite import graph_pass, Readers, Stage, Step
from ..entries import output
from ..target import Target
from .cross_entropy_updates import updated_losses

_LOSSES = (softmax_cross_entropy, WideSoftmaxCrossEntropy)


@dataclass(frozen=True)
class _LossMatch:
    """A loss, the classifier before it, the gradients of both, and the nodes that make d_loss, in order.

    `casts` widen gradients of the classifier, by their names. pays: whether it does with a gradient in the
    weight that is there as a whole.
    """

    loss: Node
    dense: Node
    backward: tuple[Node, ...] = ()
    head: Entry | None = None
    sources: tuple[Node, ...] = ()
    casts: Mapping[Node, str] = field(default_factory=dict)
    pays: bool = True

    @property
    def gone(self) -> tuple[Node, ...]:
        return (self.loss, self.dense, *self.backward, *self.casts)

    @property
    def gradients(self) -> dict[Entry, str]:
        """Entries, with the output of the node for both that stands for each."""
        found = {Entry(cast): name for cast, name in self.casts.items()}
        for node in self.backward[1:]:
            found |= {Entry(node, i): n for i, n in enumerate(node.output_names)}
        return found


@graph_pass(Stage.STEP, anchors=_LOSSES)
def chunked_cross_entropy(step: Step, target: Target) -> Step:
    """A node for each classifier and its loss, where gradients in weights pay or go into updates. O(inputs).

    Chunks are of 16-bit numbers where code can be generated for them.
    """
    found = _matches(step, target.storable())
    if all(m.pays for m in found):
        return _joined_all(step, found)[0]
    made, moved = _joined_all(step, found)
    joined = updated_losses(made)
    those = [m for m in found if m.pays or moved[Entry(m.loss)].node in joined]
    return made if len(those) == len(found) else _joined_all(step, those)[0]


def _joined_all(step: Step, found: list[_LossMatch]) -> tuple[Step, Mapping[Entry, Entry]]:
    """The step with a node for each of `found`, and what stands for its entries now."""
    if not found:
        return step, {}
    graph = step.graph
    of_loss = {m.loss: m for m in found}
    gone = {n for m in found for n in m.gone}
    early = _early_updates(graph, found)
    placed = gone | early | {n for m in found for n in m.sources}
    made = Rewriter(graph)
    fore: list[Node] = list(graph.variables)
    back: list[Node] = []
    there: set[Node] = set()
    for node in step.operators:
        if node in of_loss:
            m = of_loss[node]
            for source in m.sources:
                if source not in there:  # several losses may have one
                    there.add(source)
                    made.keep(source, fore)
            joined, places = _joined(m, made)
            fore.append(joined)
            made.infer(joined)
            for old, name in places.items():
                made.put(old, output(joined, name))
        elif node not in placed:
            made.keep(node, fore if node in step.forward else back)
    first: list[Node] = []
    for update in graph.effects:
        if update in early:
            made.keep(update, first)
    made.order = [*fore, *first, *back]
    return step.became(made.graph(), made.moved, len(fore) - len(graph.variables)), made.moved


def _matches(step: Step, narrow: Set[str]) -> list[_LossMatch]:
    """The losses that can be fused; `narrow` are the types of 16 bits that chunks may have."""
    graph, readers, hidden = step.graph, step.readers, step.shown
    found = []
    for loss in step.forward:
        if loss.op not in _LOSSES:
            continue
        scores = loss.inputs[0]
        dense = scores.node
        if dense.op is not FullyConnected or scores in hidden or not _is_large(graph, dense, narrow):
            continue
        if graph.dtypes[Entry(loss)] != accumulator(graph.dtypes[scores]):
            continue  # a sum of 16 bits
        of_loss = [n for n in readers.all(scores) if n is not loss]
        if not of_loss:
            found.append(_LossMatch(loss, dense))
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
        is_grown = bool(readers.all(output(by_dense, "d_weight")))
        pays = not is_grown or _pays(graph, dense)
        head = by_loss.named_inputs["d_out"]
        sources = _sources(step, head)
        if sources is not None:
            found.append(_LossMatch(loss, dense, (by_loss, by_dense), head, sources, casts, pays))
    return found


def _casts(graph: Graph, by_dense: Node, readers: Readers) -> dict[Node, str] | None:
    """The nodes that widen gradients of 16 bits which the node for both makes in float32; None where another
    one reads such a gradient.
    """
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
    """True if scores are two chunks or more, of a type that chunks may have."""
    rows, classes = graph.shapes[Entry(dense)]
    dtype = graph.dtypes[Entry(dense)]
    kinds = {graph.dtypes[e] for e in dense.inputs}
    if kinds != {dtype} or not rows or not classes or (dtype.itemsize < 4 and dtype.name not in narrow):
        return False
    return tile_sizes.LEAST_SCORE_ROWS <= score_tiles(rows, classes, dtype).each < rows


def _pays(graph: Graph, dense: Node) -> bool:
    """True if the weight's gradient and a chunk are smaller than the scores."""
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


def _early_updates(graph: Graph, found: list[_LossMatch]) -> set[Node]:
    """Updates of which all but the gradient is there, and whose weight nobody else reads."""
    made = {e for m in found for e in m.gradients}
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
        and uses[n.inputs[0]] == 1
        and all(e.node.op is None for i, e in enumerate(n.inputs) if i != 1)
    }


def _joined(m: _LossMatch, made: Rewriter) -> tuple[Node, dict[Entry, str]]:
    """The node for both, and which of its outputs stands for what."""
    named = m.dense.named_inputs | {"label": m.loss.inputs[1]}
    if m.head is not None:
        named["d_out"] = m.head
    attrs = DenseLossAttrs(m.dense.attrs.no_bias, m.head is not None)
    inputs = made.all_of([named[n] for n in DenseCrossEntropy.input_names(attrs)])
    places = {Entry(m.loss): "out"} | m.gradients
    return Node(DenseCrossEntropy, attrs, inputs, m.loss.name), places
