"""Grouping of casts of many small variables into a few nodes, each of which is one launch.

Mixed precision rounds each weight once a step, for the layer that reads it and for that layer's gradient, and
a plan may recompute the rounding rather than hold it. For a small weight either is a launch of some
microseconds for kilobytes of work.

    c1 layer1  c2 layer2  c3 layer3 ...   =>   c123  layer1  layer2  layer3 ...

A group grows, in the order of the graph, until its outputs have GROUP_BYTES; then the next one begins. A
result of more than SMALL_BYTES stays alone. Early casts are live longer, so the arena grows by
GROUP_BYTES for each kind of cast at most, and by results that are no longer recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Entry, Graph, Node, Rewriter
from ...ops.elementwise.cast import Cast
from ..cast_group import _fused_casts, CastGroupAttrs
from ..passes.ways import is_stage
from .groups import Groups, SMALL_BYTES


def group_casts(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph`, of a training step, with its casts of variables in groups; see `Backend.combine`. O(nodes).

    Inference is left alone: what depends on parameters alone is computed once there, not in each call.
    """
    trains = num_forward < sum(n.op is not None for n in graph.nodes)
    groups = _groups(graph, kept, num_forward) if trains else []
    if not groups:
        return graph, {}, num_forward
    first = {g[0]: g for g in groups}
    members = {node for g in groups for node in g}
    result = Rewriter(graph)
    result.order += [n for n in graph.nodes if n.op is None]  # variables precede their group's first member
    for node in graph.nodes:
        if node.op is None:
            continue
        if node in first:
            made = _joined(graph, first[node])
            result.order.append(made)
            for i, one in enumerate(first[node]):
                result.put(Entry(one), Entry(made, i))
        if node not in members:
            result.keep(node)
    fewer = sum(len(g) - 1 for g in groups)
    return result.graph(), result.moved, num_forward - fewer


def _groups(graph: Graph, kept: frozenset[Entry], num_forward: int) -> list[list[Node]]:
    """Casts of the forward pass that read variables, in their order, in groups of one kind."""
    forward = [(n, n.op) for n in graph.nodes if n.op is not None][:num_forward]
    written = {
        e for n, op in forward for name, e in zip(n.input_names, n.inputs) if name in op.mutated(n.attrs)
    }
    shown = kept.union(graph.outputs)
    groups = Groups()
    for node, op in forward:
        e = Entry(node)
        if op is not Cast or node.inputs[0].node.op is not None or is_stage(node):
            continue
        if e in shown or node.inputs[0] in written or graph.nbytes(e) > SMALL_BYTES:
            continue
        groups.add(node, (graph.dtypes[node.inputs[0]], graph.dtypes[e]), graph.nbytes(e))
    return groups.joined()


def _joined(graph: Graph, group: list[Node]) -> Node:
    first = group[0]
    attrs = CastGroupAttrs(str(graph.dtypes[Entry(first)]), len(group))
    name = f"{first.name}_and_{len(group) - 1}_more"
    return Node(_fused_casts, attrs, tuple(n.inputs[0] for n in group), name)
