"""A recurrent network that is trained keeps its gates, and backward does not compute them again.

In mixed precision it reads its parameters as they are, see `passes/wide_parameters.py`.
"""

from __future__ import annotations

from ....graph import Entry, Graph, Rewriter
from ....graph.opdef import known_shape
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import _rnn_keeping_gates
from ....ops.rnn.rnn_wide import _rnn_wide
from ...passes.wide_parameters import widest
from ..kernels.recurrent import fits


def keep_gates(graph: Graph, train: bool) -> Graph:
    """`graph` with `_rnn_keeping_gates` for every RNN of which generated code makes use. O(nodes)."""
    if not train or not any(n.op is RNN for n in graph.nodes):
        return graph
    r = Rewriter(graph)
    for node in graph.nodes:
        data = node.inputs[0] if node.op is RNN else None
        if data is None or node.attrs.mode not in ("lstm", "gru") or not known_shape(graph.shapes[data]):
            r.keep(node)
        elif not fits(node.attrs, graph.shapes[data], graph.dtypes[data]):
            r.keep(node)
        else:
            ins = [r.of(e) for e in node.inputs]
            ins[1] = r.of(widest(graph, node.inputs[1]))
            new = r.add(_rnn_keeping_gates, node.attrs, ins, node.name, node.annotations)
            for i in range(node.num_outputs):
                r.put(Entry(node, i), Entry(new, i))
    return r.graph(ordered=False)


def forget_gates(graph: Graph, train: bool) -> Graph:
    """`graph` with RNN in place of each `_rnn_keeping_gates`; see `Backend.spare`. O(nodes)."""
    forgotten = {n for n in graph.nodes if n.op is _rnn_keeping_gates}
    if not forgotten:
        return graph
    r = Rewriter(graph)
    for node in graph.nodes:
        if node not in forgotten:
            r.keep(node)
            continue
        data, parameters = (graph.dtypes[e] for e in node.inputs[:2])
        new = r.add(
            RNN if data == parameters else _rnn_wide,
            node.attrs,
            [r.of(e) for e in node.inputs],
            node.name,
            node.annotations,
        )
        for i in range(new.num_outputs):
            r.put(Entry(node, i), Entry(new, i))
    return r.graph(ordered=False)
