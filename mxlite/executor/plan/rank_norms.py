"""SyncBatchNorm over the ranks of a job, as nodes of the step: see `ops/norm/norm_over_ranks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...graph import Entry, Graph, Node, parse_attrs, Rewriter
from ...ops import find_op
from ...ops.norm.norm import ContribSyncBatchNorm


def norms_over_ranks(graph: Graph, ranks: int) -> Graph:
    """A network for training, in which each SyncBatchNorm normalizes by the batches of all ranks. O(nodes).

    Their messages are in the order of the nodes: each reads the token of the one before.
    """
    if all(n.op is not ContribSyncBatchNorm for n in graph.nodes):
        return graph
    made = Rewriter(graph)
    token: tuple[Entry, ...] = ()
    for node in made.walk():
        if node.op is ContribSyncBatchNorm and not node.attrs.use_global_stats:
            token = (_written_out(made, node, ranks, token),)
        else:
            made.keep(node)
    return made.graph(ordered=False)


def _written_out(made: Rewriter, norm: Node, ranks: int, token: tuple[Entry, ...]) -> Entry:
    """Add nodes that do what `norm` does on all ranks; the token of their message, which reads `token`."""

    def add(op: str, part: str, inputs: Sequence[Entry], **given: Any) -> Node:
        attrs = parse_attrs(find_op(op), given)
        return made.add(find_op(op), attrs, inputs, f"{norm.name}_{part}", norm.annotations)

    a, shape, (data, *vectors) = norm.attrs, made.old.shapes[norm.inputs[0]], made.inputs(norm)
    moments = add("_channel_moments", "moments", [data])
    both = [Entry(moments, 0), Entry(moments, 1)]
    rows = add("_moments_by_rank", "rows", both, count=shape[0] * prod(shape[2:]), ranks=ranks)
    sent = [Entry(rows), *token]
    every = add("_sum_over_ranks", "over_ranks", sent, num_args=len(sent), arrays=1, ranks=ranks)
    given = {"eps": a.eps, "momentum": a.momentum, "fix_gamma": a.fix_gamma}
    line = add("_line_of_moments", "line", [*vectors, Entry(every)], **given)
    out = add("_channel_line", "out", [data, Entry(line, 0), Entry(line, 1)])
    for i, entry in enumerate((Entry(out), Entry(line, 2), Entry(line, 3))):
        made.put(Entry(norm, i), entry)
    return Entry(every, 1)
