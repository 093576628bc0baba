"""A weight whose gradient a dense layer makes in bands of columns is updated in the same bands.

    d_h, d_weight = _loaded_dense_gradient(d_out, weight, h)
    update(weight, d_weight, states)                             becomes
    d_h = _loaded_dense_update(d_out, h, weight, states)

In mixed precision the gradient is made of a copy of the weight that is cast to 16 bits; the update makes that
itself.

It needs what `product_updates` needs: a gradient with one reader, a step that is made element by element, and
a weight that nobody reads later.
"""

from __future__ import annotations

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ...base import Request
from ...fused.loaded_dense import LoadedDenseGradient, LoadedDenseUpdate, LoadedUpdateAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import request_of
from ..target import Target
from .product_updates import joinable


@graph_pass(Stage.STEP, after=("loaded_dense",))
def loaded_updates(step: Step, target: Target) -> Step:
    """Updates in bands. O(inputs)."""
    graph = step.graph
    found = {u.inputs[1].node: u for u in _updates(step) if target.has_kernel(_request(graph, u))}
    if not found:
        return step
    gone = set(found.values())
    made = Rewriter(graph)
    made.order += graph.variables  # states are read before where they stood
    for node in made.walk(step.num_forward):
        if node.op is None or node in gone:
            continue
        if node in found:
            update = found[node]
            new = Node(LoadedDenseUpdate, _attrs(update), made.all_of(_inputs(update)), update.name)
            made.node_of |= {update: new, node: new}
            made.order.append(new)
            made.put(Entry(node), Entry(new))
        else:
            made.keep(node)
    return step.rewritten(made)


def _updates(step: Step) -> list[Node]:
    """The updates that can be made in bands."""
    if not any(n.op is LoadedDenseGradient for n in step.operators):
        return []
    found = []
    for update in joinable(step):
        weight, gradient = update.inputs[:2]
        made = gradient.node
        if made.op is LoadedDenseGradient and gradient.index == 1 and _origin(made.inputs[1]) == weight:
            found.append(update)
    return found


def _origin(entry: Entry) -> Entry:
    """What `entry` is a cast of, or itself."""
    return entry.node.inputs[0] if entry.node.op is Cast else entry


def _inputs(update: Node) -> tuple[Entry, ...]:
    d_out, _, data = update.inputs[1].node.inputs
    return (d_out, data, update.inputs[0], *update.inputs[2:])


def _attrs(update: Node) -> LoadedUpdateAttrs:
    assert update.op is not None
    return LoadedUpdateAttrs(update.inputs[1].node.attrs, update.op, update.attrs)


def _request(graph: Graph, update: Node) -> Request:
    """The question for a kernel for what `update` becomes."""
    ins = _inputs(update)
    return request_of(graph, LoadedDenseUpdate, _attrs(update), ins, (graph.shapes[ins[1]],))
