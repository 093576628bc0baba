"""Gradients summed over the ranks of a job, as nodes of the step.

Each gradient is summed as soon as it exists, while backward goes on; its update reads the sum:

    backward     d3       d2       d1
    messages        sum3     sum2     sum1
    updates              w3       w2       w1

Small gradients share a message: one of a few bytes takes as long as one of some ten thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...comm.ordered_sum import PIECE
from ...graph import Entry, Graph, Node, parse_attrs
from ...ops import find_op

BUCKET = PIECE
"""Bytes of gradients that share a message, at most."""

SMALL = BUCKET // 8
"""Bytes of a gradient that shares, at most. Larger ones travel alone, in place."""


def summed_over_ranks(
    graph: Graph, gradients: Sequence[tuple[Entry, Entry]], ranks: int
) -> tuple[Graph, list[tuple[Entry, Entry]]]:
    """`graph` with the sums of these gradients, given as (variable, gradient), and the sums in their place.

    Every rank that plans the same network gets the same sums in the same order. O(nodes).
    """
    if ranks == 1:
        return graph, list(gradients)
    place = {node: i for i, node in enumerate(graph.nodes)}
    entries = dict.fromkeys(g for _, g in gradients)  # a gradient may be that of several variables
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    for variable, gradient in gradients:
        shapes[gradient], dtypes[gradient] = shapes[variable], dtypes[variable]
    graph = replace(graph, shapes=shapes, dtypes=dtypes)
    total: dict[Entry, Entry] = {}
    behind: dict[Node, list[Node]] = {}
    op = find_op("_sum_over_ranks")
    for bucket in _buckets(graph, sorted(entries, key=lambda e: (place[e.node], e.index))):
        last = bucket[-1].node
        name = last.name if len(bucket) == 1 else f"{last.name}_and_{len(bucket) - 1}_more"
        attrs = parse_attrs(op, {"num_args": len(bucket), "ranks": ranks})
        node = Node(op, attrs, tuple(bucket), f"{name}_over_ranks")
        behind.setdefault(last, []).append(node)
        for i, gradient in enumerate(bucket):
            total[gradient] = Entry(node, i)
            shapes[total[gradient]], dtypes[total[gradient]] = shapes[gradient], dtypes[gradient]
    order = [n for node in graph.nodes for n in (node, *behind.get(node, ()))]
    summed = replace(graph, order=tuple(order), shapes=shapes, dtypes=dtypes)
    return summed, [(variable, total[gradient]) for variable, gradient in gradients]


def _buckets(graph: Graph, gradients: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The gradients of each message. They come in the order in which they arise, and leave in that of the last
    of each message.
    """
    open_buckets: dict[Any, list[Entry]] = {}
    size: Counter[Any] = Counter()
    for gradient in gradients:
        nbytes, dtype = graph.nbytes(gradient), graph.dtypes[gradient]
        if nbytes > SMALL:
            yield [gradient]
            continue
        if size[dtype] + nbytes > BUCKET:
            yield open_buckets.pop(dtype)
            size[dtype] = 0
        open_buckets.setdefault(dtype, []).append(gradient)
        size[dtype] += nbytes
    yield from open_buckets.values()
