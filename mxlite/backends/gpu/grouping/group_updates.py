"""Grouping of parameter updates into a few nodes, each of which is one launch.

A network has hundreds of parameters, most of them small: gamma, beta, bias. An update is a launch of a few
microseconds for kilobytes of work. But a gradient dies in its update, and stays live until all gradients of a
joint update are there, so groups are bounded by size. In one pass over the gradients in the order
in which backward computes them,

    g1 u1  g2 u2  g3 u3  g4 u4 ...   =>   g1  g2  g3 u123  g4 ...

a group grows until its gradients have GROUP_BYTES, then the next one begins; gradients above SMALL_BYTES are
updated alone, at once. No more than one group of a kind is open at any step, so the arena grows by
GROUP_BYTES for each kind of update at most (there is one kind, or two where some weights are of 16 bits).
If the rates of all updates depend on all gradients anyway, as with a loss scale, gradients live until then,
and everything is joined.

The planner sees the groups as they are: what they cost is in the plan.
"""

from __future__ import annotations

from dataclasses import replace

from ....graph import Graph, Node
from ...fused.update_group import FusedUpdates, GroupAttrs
from ...passes.target import Target
from ...rewrite import graph_pass, Stage, Step
from .groups import Groups, SMALL_BYTES


@graph_pass(Stage.STEP, after=("inline_gradient_casts", "chains"))
def group_updates(step: Step, target: Target) -> Step:
    """Updates in groups. O(nodes)."""
    graph = step.graph
    place = {node: i for i, node in enumerate(graph.nodes)}
    updates = [n for n in graph.effects if n.op is not None and getattr(n.op, "form", "") == "fused"]
    groups = Groups()
    for node in sorted(updates, key=lambda n: place[n.inputs[1].node]):
        nbytes = graph.nbytes(node.inputs[1])
        waits = node.inputs[-1].node.op is not None  # for rates computed from all gradients
        if nbytes > SMALL_BYTES and not waits:
            continue
        kind = (node.op, replace(node.attrs, row=0), node.inputs[-1], *(graph.dtypes[e] for e in node.inputs))
        groups.add(node, kind, 0 if waits else nbytes)  # what lives until then anyway costs nothing here
    return step.became(_joined(graph, groups.joined()))


def _joined(graph: Graph, groups: list[list[Node]]) -> Graph:
    """`graph` with one node for each group, in the position of its last member among the effects."""
    if not groups:
        return graph
    member = {node: i for i, group in enumerate(groups) for node in group}
    made = []
    for group in groups:
        first = group[0]
        assert first.op is not None
        attrs = GroupAttrs(first.op, replace(first.attrs, row=0), tuple(n.attrs.row for n in group))
        inputs = [e for n in group for e in n.inputs[:-1]]
        name = f"{first.name}_and_{len(group) - 1}_more"
        made.append(Node(FusedUpdates, attrs, (*inputs, first.inputs[-1]), name))
    effects = [n for n in graph.effects if n not in member]
    order = [n for n in graph.nodes if n not in member]
    return replace(graph, effects=(*effects, *made), order=(*order, *made))
