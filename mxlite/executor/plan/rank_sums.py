"""Gradients summed over the ranks of a job, as nodes of the step.

Each gradient is summed as soon as it exists, while backward goes on; its update reads the sum:

    backward     d3       d2       d1
    messages        sum3     sum2     sum1
    updates              w3       w2       w1

The update of a large weight may be shared by the ranks instead: each keeps a part of its states, gets the
sum of its part of the gradient, and gives the others its part of the new weight. That takes messages of the
same size.

Small gradients share a message, see `comm/buckets.py`. Each sum reads a token of the one before: so all ranks
run them in the order in which gradients arise, whatever else their plans differ in.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from math import prod

from ...comm import buckets, shard_length
from ...comm.buckets import SMALL
from ...graph import Entry, Graph, Node, parse_attrs, Shape, state_name, UpdateRule, variable
from ...ops import find_op


def with_sharded_updates(
    graph: Graph,
    rule: UpdateRule,
    gradients: Sequence[tuple[Entry, Entry]],
    whole: Container[Entry],
    hyper: Entry,
    ranks: int,
) -> tuple[Graph, dict[Entry, Shape], tuple[Entry, ...]]:
    """`graph` with the updates of large weights shared by the ranks; the shapes of states; the last one's
    token.

    `gradients` are (weight, gradient) in the order of the rows of `hyper`. Each update has its place behind
    its gradient and all that reads the old weight. Those of the weights in `whole` are not shared. O(nodes).
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    read = {e: node for node in graph.nodes for e in node.inputs}  # by its last reader
    sharded: dict[Entry, Shape] = {}
    token: tuple[Entry, ...] = ()
    behind: dict[Node, list[Node]] = {}
    at = graph.nodes[0]
    op = find_op("_sharded_update")
    rows = [(w, g, row) for row, (w, g) in enumerate(gradients)]
    for weight, gradient, row in sorted(rows, key=lambda r: (place[r[1].node], r[1].index)):
        dtype = graph.dtypes[weight]
        if graph.nbytes(weight) <= SMALL or weight in whole or rule.op_of(dtype) is not rule.op:
            continue
        states = [variable(state_name(weight.node.name, s)) for s in rule.states]
        inputs = (weight, gradient, *states, hyper, *token)
        settings = parse_attrs(rule.op, {**rule.attrs, "row": row})
        attrs = op.Attrs(len(inputs), rule.op, settings, ranks, len(states))
        node = Node(op, attrs, inputs, f"{weight.node.name}_update")
        at = max(at, gradient.node, read.get(weight, at), key=place.__getitem__)
        behind.setdefault(at, []).extend([*(s.node for s in states), node])
        token = (Entry(node),)
        sharded[weight] = (shard_length(prod(graph.shapes[weight]), dtype.itemsize, ranks),)
    order = [n for node in graph.nodes for n in (node, *behind.get(node, ()))]
    if sharded:
        order.insert(0, hyper.node)
    effects = (*graph.effects, *(e.node for e in token))
    return replace(graph, order=tuple(order), effects=effects), sharded, token


def summed_over_ranks(
    graph: Graph, gradients: Sequence[Entry], ranks: int, token: tuple[Entry, ...] = ()
) -> tuple[Graph, dict[Entry, Entry]]:
    """`graph` with the sums of these gradients, whose shapes and types it knows, and the sum of each.

    Every rank that plans the same network gets the same sums in the same order, behind the message of
    `token` if there is one. O(nodes).
    """
    if not gradients:
        return graph, {}
    place = {node: i for i, node in enumerate(graph.nodes)}
    entries = dict.fromkeys(gradients)  # a gradient may be that of several variables
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    total: dict[Entry, Entry] = {}
    behind: dict[Node, list[Node]] = {}
    op = find_op("_sum_over_ranks")
    arising = sorted(entries, key=lambda e: (place[e.node], e.index))
    last = token[0].node if token else arising[0].node
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


def tokens_of(graph: Graph) -> list[Entry]:
    """The tokens of all messages that have one, in their order. They have storage of their own: in the arena
    a token would lie where something else was until just before, and its message would have to wait for that.
    """
    with_token = find_op("_sum_over_ranks"), find_op("_sharded_update")
    makers = (n for n in graph.nodes if n.op in with_token)
    return [Entry(n, n.num_outputs - 1) for n in makers]
