"""A classifier's weight is updated where its gradient is made, and then that is never there as a whole.

    forward     loss, d_data, d_weight = _dense_cross_entropy(data, weight, ...)
                out = MakeLoss(loss)
    backward    update(weight, d_weight, momentum)

becomes

    backward    loss, d_data = _dense_cross_entropy_update(data, weight, ..., momentum)
                out = MakeLoss(loss)

See `dense_cross_entropy_update.py`; it needs a step with momentum that looks at the gradient by no other way.
In mixed precision the loss reads the float32 weight, which the step changes, and no copy of it.
A weight may not change in the forward pass, so that the loss, and what follows from it there, are made in the
backward pass. Who wants to see them before has them made by their `preview`s, see `executor/plan/lower.py`.
So what follows has to be little, and must do nothing but follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.shape.reshape import Reshape
from ...fused import tile_sizes
from ...fused.dense_cross_entropy import DenseCrossEntropy
from ...fused.dense_cross_entropy_update import DenseCrossEntropyUpdate, DenseLossUpdateAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .gradient_updates import is_elementwise

_FEW_BYTES = 1024
"""Most bytes of all that follows from a loss: it is computed twice where forward and backward are called
apart.
"""


class _LossUpdateMatch(NamedTuple):
    """A loss with its classifier, and the update of the classifier's weight."""

    loss: Node
    update: Node

    @property
    def cast(self) -> Node | None:
        """The node that narrows the weight for the loss."""
        node = self.loss.inputs[1].node
        return None if node.op is None else node


@graph_pass(Stage.STEP, after=("chunked_cross_entropy",), anchors=(DenseCrossEntropy,))
def cross_entropy_updates(step: Step, target: Target) -> Step:
    """Updates inside of losses. O(inputs * losses)."""
    graph, forward = step.graph, step.forward
    found, late = _matches(step)
    if not found:
        return step
    of_loss = {m.loss: m for m in found}
    joined = {m.update for m in found}
    casts = {m.cast for m in found}
    made = Rewriter(graph)
    fore: list[Node] = list(graph.variables)
    first: list[Node] = []
    back: list[Node] = []
    for node in step.operators:
        if node in joined or node in casts:
            continue
        part = first if node in late else fore if node in forward else back
        if node in of_loss:
            made.replace(node, _joined(of_loss[node], made.inputs(node)), part)
        else:
            made.keep(node, part)
    made.order = [*fore, *first, *back]
    new = made.graph()
    effects = tuple(n for n in new.effects if n not in joined)
    return step.became(replace(new, effects=effects), made.moved, len(fore) - len(graph.variables))


def updated_losses(step: Step) -> set[Node]:
    """The losses that `cross_entropy_updates` would give the update of their weight."""
    return {m.loss for m in _matches(step)[0]}


def _matches(step: Step) -> tuple[list[_LossUpdateMatch], set[Node]]:
    """The losses that are fused, and the nodes of the forward pass that run later for that."""
    graph, kept, forward = step.graph, step.kept, step.forward
    losses = [n for n in forward if n.op is DenseCrossEntropy and n.attrs.gradients]
    found: list[_LossUpdateMatch] = []
    late: set[Node] = set()
    uses = graph.uses() if losses else {}
    for loss in losses:
        gradient = output(loss, "d_weight")
        updates = [n for n in graph.effects if len(n.inputs) > 1 and n.inputs[1] == gradient]
        if len(updates) != 1 or uses[gradient] > 1 or gradient in kept:
            continue
        (update,) = updates
        followers = _followers(graph, loss, forward)
        if loss.inputs[1] not in kept and _suits(graph, loss, update, uses) and _is_little(graph, followers):
            found.append(_LossUpdateMatch(loss, update))
            late |= {loss, *followers}
    return found, late | _shapers(step, late)


def _suits(graph: Graph, loss: Node, update: Node, uses: Mapping[Entry, int]) -> bool:
    """True if the step can use a gradient part by part, and reads only numbers that are there."""
    weight, gradient, *others = update.inputs
    if not is_elementwise(update.op) or len(others) != 2 or graph.nbytes(gradient) < tile_sizes.LEAST_UPDATE:
        return False
    step: Any = update.op.step_of  # type: ignore[union-attr]
    copy = loss.inputs[1]
    is_narrowed = copy.node.op is Cast and copy.node.inputs == (weight,) and uses[copy] == 1
    if step.growth(update.attrs) is None or (weight != copy and not is_narrowed):
        return False
    if uses[weight] != 2 or uses[others[0]] != 1 or any(e.node.op is not None for e in (weight, *others)):
        return False
    return all(graph.dtypes[e] == float32 for e in (weight, gradient, others[0]))


def _followers(graph: Graph, loss: Node, forward: Mapping[Node, None]) -> list[Node]:
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


def _joined(m: _LossUpdateMatch, inputs: tuple[Entry, ...]) -> Node:
    """The loss that updates the weight."""
    assert m.update.op is not None
    attrs = DenseLossUpdateAttrs(m.loss.attrs.no_bias, m.update.op, m.update.attrs)
    weight, _, *others = m.update.inputs
    data, _, *rest = inputs
    return Node(DenseCrossEntropyUpdate, attrs, (data, weight, *rest, *others), m.loss.name)
