"""A recurrent network that is trained keeps its gates, and backward does not compute them again."""

from __future__ import annotations

from ....graph import Entry, Graph, Rewriter
from ....graph.opdef import known_shape
from ....ops.rnn import RNN
from ....ops.rnn_gates import _rnn_keeping_gates
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
            new = r.add(_rnn_keeping_gates, node.attrs, ins, node.name, node.annotations)
            for i in range(node.num_outputs):
                r.put(Entry(node, i), Entry(new, i))
    return r.graph()
