"""A large weight's gradient is made where it is used: inside the update, a band of rows at a time.

    d_weight = d_out.T @ data     update(weight, d_weight, states)      becomes
                                  update(weight, d_out, data, states)

That needs a gradient with one term and one reader, and a step that is made element by element: neither a
norm of the whole gradient nor a loss scale that looks at it first. Nor may d_out and data have to wait for
it: the weight may change when the gradient in data has been made from it, and that comes first where the
weight is larger than data, see `split_gradients`. And the gradient has to be large enough for bands to pay.

The gradient of a bias becomes a node of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.nn.dense import FullyConnected
from ...fused.product_update import (
    BAND_BYTES,
    DEEP,
    DEEP_BAND_BYTES,
    depth,
    ProductUpdate,
    ProductUpdateAttrs,
)
from ...rewrite import graph_pass, Stage, Step
from ..entries import inputs_by_name, output
from ..target import Target

LEAST_BYTES, DEEP_LEAST_BYTES = 2 * BAND_BYTES, 4 * DEEP_BAND_BYTES
"""Of a gradient that is made in bands, the second of deep products. A smaller one stays in the cache as a
whole; one of a deep product, in bands, takes a few percent longer, which is to bring more than a few
bytes."""


class _UpdateMatch(NamedTuple):
    """An update and the node that makes its gradient.

    moves: whether both in one read nothing of the forward pass, nor what another update changes, so that a
    plan may put it wherever it likes.
    """

    update: Node
    gradient: Node
    moves: bool


@graph_pass(Stage.STEP, after=("split_gradients", "narrow_gradients", "inline_batch_casts", "loaded_dense"))
def product_updates(step: Step, target: Target) -> Step:
    """Updates that make their gradient. O(inputs)."""
    graph, found = step.graph, _matches(step)
    if not found:
        return step
    of_update = {m.update: m for m in found}
    of_gradient = {m.gradient: m for m in found}
    made = Rewriter(graph)
    made.order += graph.variables  # weights and states, read before where they stood
    for node in made.walk(step.num_forward):
        if node.op is None:
            continue
        if node in of_gradient:
            named = dict(zip(node.input_names, made.inputs(node)))
            if any(Entry(node, i) in step.read for i, n in enumerate(node.output_names) if n != "d_weight"):
                made.replace(node, replace(node, inputs=(named["d_out"],), absent=node.absent | {"data"}))
            if not of_gradient[node].moves:
                made.replace(of_gradient[node].update, _joined(of_gradient[node], made))
        elif node not in of_update:
            made.keep(node)
        elif of_update[node].moves:
            made.replace(node, _joined(of_update[node], made))
    return step.rewritten(made)


def _matches(step: Step) -> list[_UpdateMatch]:
    """The updates that can make their gradient, in the order of `effects`."""
    graph, forward = step.graph, step.forward
    changed = {e for n in graph.effects for e in _changed(n)}
    found = []
    for update in joinable(step):
        gradient = update.inputs[1]
        made = gradient.node
        if made.op is not FullyConnected.grad_op or gradient != output(made, "d_weight") or made in forward:
            continue
        if step.readers.wants(output(made, "d_data")):
            continue  # one node for both: this backend does not split gradients
        named = inputs_by_name(made)
        is_deep = depth((graph.shapes[named["d_out"]], (), graph.shapes[gradient])) >= DEEP
        if graph.nbytes(gradient) < (DEEP_LEAST_BYTES if is_deep else LEAST_BYTES):
            continue
        read = (named["d_out"], named["data"])
        moves = all(e.node not in forward and e not in changed for e in read)
        found.append(_UpdateMatch(update, made, moves))
    return found


def joinable(step: Step) -> list[Node]:
    """Updates that may be made where their gradient is: element by element, of a gradient that nobody else
    reads, to a weight that nobody reads after that is made. In the order of `effects`.
    """
    graph = step.graph
    place, last = {n: i for i, n in enumerate(graph.nodes)}, last_readers(graph)
    found = []
    for update in graph.effects:
        if not is_elementwise(update.op):
            continue
        weight, gradient = update.inputs[:2]
        if step.readers.only(gradient) is not update:
            continue
        reader = last.get(weight)
        if reader is None or place[reader] <= place[gradient.node]:
            found.append(update)
    return found


def last_readers(graph: Graph) -> dict[Entry, Node]:
    """The last node that reads an entry, or what is made of it alone. No update reads what it changes."""
    updates = set(graph.effects)
    origin: dict[Entry, Entry] = {}  # what is made of a weight alone, as a 16-bit copy, and may be made again
    last: dict[Entry, Node] = {}
    for node in graph.nodes:
        own = _changed(node) if node in updates else frozenset()
        last.update((origin.get(e, e), node) for e in node.inputs if e not in own)
        if len(node.inputs) == 1:
            origin.update((Entry(node, i), node.inputs[0]) for i in range(node.num_outputs))
    return last


def _changed(update: Node) -> frozenset[Entry]:
    """What an update changes: a weight and its states."""
    assert update.op is not None
    names = update.op.mutated(update.attrs)
    return frozenset(e for name, e in zip(update.input_names, update.inputs) if name in names)


def is_elementwise(op: Any) -> bool:
    """Whether `op` is an optimizer's step of a program that changes each element by itself."""
    return getattr(op, "form", "") == "fused" and "whole" not in vars(op.step_of)


def _joined(m: _UpdateMatch, made: Rewriter) -> Node:
    """The update that makes its gradient."""
    named = inputs_by_name(m.gradient)
    weight, _, *others = m.update.inputs
    inputs = made.all_of((named["d_out"], named["data"], weight, *others))
    assert m.update.op is not None
    return Node(ProductUpdate, ProductUpdateAttrs(m.update.op, m.update.attrs), inputs, m.update.name)
