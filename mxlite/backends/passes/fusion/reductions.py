"""Fusion of reductions with the elementwise operators in front of them, between them and behind them.

    a -> exp -> mul -> sum                  [exp, mul, sum]
                ^                     =>
                b
    x -> square -> mean -> rsqrt -> mul     [square, mean, rsqrt, mul]
    x ------------------------------^

The arrays between them are neither written nor read: a kernel sweeps over an array once for each level of
reductions, and computes anew what it needs. Members are operators that declare a computation and have no
better kernel than the loop nests made of it, and elementwise ones: chains, by the time that this pass runs.
All are computed over one domain; steps on what has fewer axes, such as a mean, join those that make it.
`groups.py` says how groups grow.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ....core.dtype import as_dtype
from ....graph import Entry, Node
from ....graph.ir import Shape
from ....te.inclusion import common_marks, refinement
from ...fused.computation import FUSED
from ...nests.program import FLOATS
from ...rewrite import graph_pass, Stage, Step
from ..remat.remat_candidates import is_stage
from ..target import Target
from .groups import fused, Group
from .members import MemberSearch

_FLOATS = frozenset(map(as_dtype, FLOATS))


@graph_pass(Stage.STEP, after=("chains", "cheap_remat"))
def reductions(step: Step, target: Target) -> Step:
    """Reductions and elementwise operators as one, where loop nests can be made of them. O(nodes)."""
    if not target.storable():
        return step
    search = _ReductionSearch(step, target)
    return fused(step, [g for g in search.groups() if search.is_more(g)], search.fused)


class _ReductionSearch(MemberSearch):
    """Groups of nodes that are computed over one domain."""

    def __init__(self, step: Step, target: Target) -> None:
        super().__init__(step, target)
        self.near = self._near()

    def _near(self) -> set[Node]:
        """The nodes that declare what they compute, and are connected through such nodes with one that may be
        more than steps of each element: all others would only be put together as chains.
        """
        beside: dict[Node, list[Node]] = {}
        more: list[Node] = []
        for node in self.number:
            op = node.op
            assert op is not None
            forward = op.forward_op or op
            if forward.compute is None:
                continue
            makers = [e.node for e in node.inputs if e.node in beside]
            for maker in makers:
                beside[maker].append(node)
            beside[node] = makers
            if op not in FUSED and not (forward.elementwise and self._has_steps_alone(node)):
                more.append(node)
        found = set(more)
        while more:
            for other in beside[more.pop()]:
                if other not in found:
                    found.add(other)
                    more.append(other)
        return found

    def _has_steps_alone(self, node: Node) -> bool:
        """True if an elementwise node is a chain wherever it is in a group: it reads types that chains can
        store, and makes arrays of one shape. Gradients of what broadcasts are sums.
        """
        graph, forward = self.graph, node.forward or node
        (whole, *_) = forward.outputs
        return all(graph.dtypes[e] in _FLOATS for e in node.inputs) and all(
            graph.shapes[e] == graph.shapes[whole] for e in node.outputs
        )

    def key(self, node: Node) -> Any:
        op = node.op
        if op is None or node not in self.near or is_stage(node) or node.after:
            return None
        forward = node in self.forward
        if forward and not op.recomputable:
            return None
        member = self.member(node)
        if member is None:
            return None
        return prod(member.formula.domain), forward, tuple(sorted(node.annotations.items()))

    def joins(self, node: Node, key: Any, group: Group) -> bool:
        if key[1:] != group.key[1:]:
            return False
        member, marks = self.members[node], self.marks(group)
        read = self._read(node, group)
        if key[0] == group.key[0]:
            both = common_marks([member.formula.marks, marks])
            if both is None:
                return False
            own = refinement(member.formula.domain, both)
            return all(_broadcasts(self.shape(e, both), own.shape(v)) for e in read for v in member.views(e))
        shapes = {self.shape(e, marks) for e in read if prod(self.graph.shapes[e]) != 1}
        return member.formula.is_whole and len(shapes) == 1 and prod(shapes.pop()) == key[0]

    def merges(self, group: Group, other: Group) -> bool:
        """True if they have one domain. A node may have joined one of them as a member of fewer axes."""
        return super().merges(group, other) and common_marks(map(self.marks, (group, other))) is not None

    def take(self, group: Group, node: Node) -> None:
        if prod(self.members[node].formula.domain) != group.key[0]:
            made = (e for e in self._read(node, group) if prod(self.graph.shapes[e]) != 1)
            self.like[node] = next(made)
        super().take(group, node)

    def _read(self, node: Node, group: Group) -> list[Entry]:
        """The inputs of a node that a group makes."""
        return [e for e in node.inputs if e.node in self.group and self.group[e.node].found() is group]

    def is_more(self, group: Group) -> bool:
        """True if a group of many elements is more than a chain."""
        return group.key[0] >= self.least and not self.is_chain(group)


def _broadcasts(shape: Shape, whole: Shape) -> bool:
    """True if `shape` broadcasts to `whole`."""
    return len(shape) <= len(whole) and all(d in (1, n) for d, n in zip(reversed(shape), reversed(whole)))
