"""The parameters of recurrent layers are updated from the gates' gradients, which lie where the gates lay.

    d_parameters, d_data = backward(..., gates)      d_gates, d_data = backward(..., gates)
    update(parameters, d_parameters, states)         update(parameters, d_gates, data, ..., states)

See `rnn_update.py`. It needs a step as `product_updates` does, and layers without dropout between them, whose
inputs would have to be drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.dtype import float32
from ....graph import Entry, Graph, Node
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import _rnn_keeping_gates
from ...passes.product_updates import joinable, LEAST_BYTES
from ...passes.rewritten import output, renewed, rewritten
from ...rnn_update import _rnn_gate_gradients, _rnn_update, GateGradientsAttrs, RNNUpdateAttrs

_HEADS = ("d_out", "d_state_output", "d_statecell_output")


def rnn_updates(
    graph: Graph, kept: frozenset[Entry], num_forward: int, least_bytes: int = LEAST_BYTES
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with updates that make the gradient of recurrent layers' parameters; see `Backend.combine`.
    Gradients of fewer than `least_bytes` bytes stay as they are. O(inputs).
    """
    found = {u.inputs[1].node: u for u in joinable(graph, kept) if _suits(graph, u, least_bytes)}
    if not found:
        return graph, {}, num_forward
    joined = set(found.values())
    order: list[Node] = [n for n in graph.nodes if n.op is None]
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    moved: dict[Entry, Entry] = {}
    node_of: dict[Node, Node] = {}

    for node in graph.nodes:
        if node.op is None or node in joined:
            continue
        if node not in found:
            new = renewed(node, tuple(moved.get(e, e) for e in node.inputs), node_of)
            order.append(new)
            if new is not node:
                node_of[node] = new
                _stands_for(node, new, moved, shapes, dtypes)
            continue
        named = {n: moved.get(e, e) for n, e in zip(node.input_names, node.inputs)}
        data = graph.shapes[node.inputs[node.input_names.index("data")]]
        attrs = GateGradientsAttrs(node.attrs, data, tuple(n for n in _HEADS if n in named))
        ins = tuple(named[n] for n in _rnn_gate_gradients.input_names(attrs))
        gradients = Node(_rnn_gate_gradients, attrs, ins, node.name)
        order.append(gradients)
        _stands_for(node, gradients, moved, shapes, dtypes)
        gates, sums = (output(gradients, n) for n in ("d_gates", "d_biases"))
        count, _, _, width = shapes[gates] = graph.shapes[named["gates"]]
        shapes[sums] = (count, width)
        dtypes[gates] = dtypes[sums] = float32
        named |= {"d_gates": gates, "d_biases": sums}
        update = found[node]
        weight, _, *others = (moved.get(e, e) for e in update.inputs)
        assert update.op is not None
        how = RNNUpdateAttrs(update.op, update.attrs, node.attrs)
        makers = tuple(named[n] for n in _rnn_update.makers if n in named)
        node_of[update] = Node(_rnn_update, how, (*makers, weight, *others), update.name)
        order.append(node_of[update])
    return rewritten(graph, order, moved, node_of, shapes, dtypes), moved, num_forward


def _suits(graph: Graph, update: Node, least_bytes: int) -> bool:
    gradient = update.inputs[1]
    made = gradient.node
    if made.op is not _rnn_keeping_gates.grad_op or gradient != output(made, "d_parameters"):
        return False
    a = made.attrs
    if RNN.draws(a, True) or a.use_sequence_length or graph.nbytes(gradient) < least_bytes:
        return False
    named = dict(zip(made.input_names, made.inputs))
    return all(graph.dtypes[e] == float32 for e in (named["parameters"], named["gates"], *update.inputs[:2]))


def _stands_for(
    old: Node, new: Node, moved: dict[Entry, Entry], shapes: dict[Entry, Any], dtypes: dict[Entry, Any]
) -> None:
    """The outputs of `new` take the places of those of `old` that have their names."""
    for i, name in enumerate(old.output_names):
        if name in new.output_names:
            was = Entry(old, i)
            e = moved[was] = output(new, name)
            if was in shapes:  # else nobody reads it
                shapes[e], dtypes[e] = shapes[was], dtypes[was]
