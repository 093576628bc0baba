"""Weights of which each rank of a job keeps a part, gathered by nodes of the step.

A message gathers the weight for its readers. Its gradient is a sum of which each rank gets its part, and the
update steps that as any other weight:

    forward      gather1  f1  gather2  f2        gathered weights live as other results do: kept for backward,
    backward              d2       d1            or dropped and gathered again, as the plan says
    messages                part2    part1
    updates                     w2       w1

A weight is gathered before its update in any schedule: what an update writes is not read later by a copy of a
forward task, and the planner places updates behind all such reads.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from math import prod

from ...comm import shard_length
from ...comm.buckets import SMALL
from ...core.dtype import is_floating
from ...graph import Entry, Graph, Rewriter, UpdateRule
from ...ops import find_op
from .row_gradients import is_row_sparse, touched_rows


def shared_weights(graph: Graph, requests: Mapping[str, str], rule: UpdateRule) -> frozenset[str]:
    """The large weights of a forward graph that ranks may share.

    Those whose rows are updated one by one are not among them, nor those that have a wider copy.
    """
    trained = (Entry(n) for n in graph.arguments if requests.get(n.name, "null") != "null")
    large = [e for e in trained if is_floating(graph.dtypes[e]) and graph.nbytes(e) > SMALL]
    flags, _ = touched_rows(graph, large)
    lazy = {e for e in flags if (rule.lazy_always or is_row_sparse(e)) and rule.lazy_of(graph.dtypes[e])}
    return frozenset(e.node.name for e in large if e not in lazy and rule.op_of(graph.dtypes[e]) is rule.op)


def with_gathered_weights(graph: Graph, shared: Container[str], ranks: int) -> Graph:
    """A forward graph whose arguments called `shared` are one rank's parts, and gathered. O(nodes)."""
    made, op = Rewriter(graph), find_op("_gather_over_ranks")
    for node in made.walk():
        e = Entry(node)
        if node.op is not None or node.name not in shared:
            made.keep(node)
            continue
        shape, dtype = graph.shapes[e], graph.dtypes[e]
        attrs = op.Attrs(shape, ranks, shard_length(prod(shape), dtype.itemsize, ranks))
        notes = {n: x for n, x in node.annotations.items() if n != "__shape__"}
        own = Entry(replace(node, annotations=notes))
        made.shapes[own], made.dtypes[own] = (attrs.length,), dtype
        made.order.append(own.node)
        made.put(e, Entry(made.add(op, attrs, [own], f"{node.name}_gathered")))
    return made.graph(ordered=False)
