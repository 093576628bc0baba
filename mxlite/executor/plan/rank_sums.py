"""Gradients summed over the ranks of a job, as nodes of the step.

Each gradient is summed as soon as it exists, while backward goes on; its update reads the sum:

    backward     d3       d2       d1
    messages        sum3     sum2     sum1
    updates              w3       w2       w1

Small gradients share a message, see `comm/buckets.py`. Each sum reads a token of the one before: so all ranks
run them in the order in which gradients arise, whatever else their plans differ in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...comm import buckets
from ...graph import Entry, Graph, Node, parse_attrs
from ...ops import find_op


def summed_over_ranks(
    graph: Graph, gradients: Sequence[Entry], ranks: int
) -> tuple[Graph, dict[Entry, Entry]]:
    """`graph` with the sums of these gradients, whose shapes and types it knows, and the sum of each.

    Every rank that plans the same network gets the same sums in the same order. O(nodes).
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    entries = dict.fromkeys(gradients)  # a gradient may be that of several variables
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    total: dict[Entry, Entry] = {}
    behind: dict[Node, list[Node]] = {}
    op = find_op("_sum_over_ranks")
    token: tuple[Entry, ...] = ()
    arising = sorted(entries, key=lambda e: (place[e.node], e.index))
    last = arising[0].node
    for numbers in buckets([(graph.nbytes(e), dtypes[e]) for e in arising]):
        bucket = [arising[i] for i in numbers]
        last = max(last, bucket[-1].node, key=place.__getitem__)  # small ones may have waited
        name = last.name if len(bucket) == 1 else f"{last.name}_and_{len(bucket) - 1}_more"
        inputs = (*bucket, *token)
        attrs = parse_attrs(op, {"num_args": len(inputs), "arrays": len(bucket), "ranks": ranks})
        node = Node(op, attrs, inputs, f"{name}_over_ranks")
        behind.setdefault(last, []).append(node)
        token = (Entry(node, len(bucket)),)
        for i, gradient in enumerate(bucket):
            total[gradient] = Entry(node, i)
            shapes[total[gradient]], dtypes[total[gradient]] = shapes[gradient], dtypes[gradient]
    order = [n for node in graph.nodes for n in (node, *behind.get(node, ()))]
    return replace(graph, order=tuple(order), shapes=shapes, dtypes=dtypes), total
