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

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ...fused.cast_group import CastGroupAttrs, FusedCasts
from ...passes.remat.remat_candidates import is_stage
from ...passes.target import Target
from ...rewrite import graph_pass, Stage, Step
from .groups import Groups, SMALL_BYTES


@graph_pass(Stage.STEP, after=("chains",))
def group_casts(step: Step, target: Target) -> Step:
    """Casts of variables in groups, in a step with a backward pass. O(nodes).

    Inference is left alone: what depends on parameters alone is computed once there, not in each call.
    """
    graph = step.graph
    groups = _groups(step) if step.has_backward else []
    if not groups:
        return step
    first = {g[0]: g for g in groups}
    members = {node for g in groups for node in g}
    result = Rewriter(graph)
    result.order += graph.variables  # variables precede their group's first member
    for node in result.walk(step.num_forward):
        if node.op is None:
            continue
        if node in first:
            made = _joined(graph, first[node])
            result.order.append(made)
            for i, one in enumerate(first[node]):
                result.put(Entry(one), Entry(made, i))
        if node not in members:
            result.keep(node)
    return step.rewritten(result)


def _groups(step: Step) -> list[list[Node]]:
    """Casts of the forward pass that read variables, in their order, in groups of one kind."""
    graph, shown = step.graph, step.shown
    written: set[Entry] = set()
    for n in step.forward:
        assert n.op is not None
        changed = n.op.mutated(n.attrs)
        written.update(e for name, e in zip(n.input_names, n.inputs) if name in changed)
    groups = Groups()
    for node in step.forward:
        e = Entry(node)
        if node.op is not Cast or node.inputs[0].node.op is not None or is_stage(node):
            continue
        if e in shown or node.inputs[0] in written or graph.nbytes(e) > SMALL_BYTES:
            continue
        groups.add(node, (graph.dtypes[node.inputs[0]], graph.dtypes[e]), graph.nbytes(e))
    return groups.joined()


def _joined(graph: Graph, group: list[Node]) -> Node:
    first = group[0]
    attrs = CastGroupAttrs(str(graph.dtypes[Entry(first)]), len(group))
    name = f"{first.name}_and_{len(group) - 1}_more"
    return Node(FusedCasts, attrs, tuple(n.inputs[0] for n in group), name)
