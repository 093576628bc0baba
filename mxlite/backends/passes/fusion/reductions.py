"""Fusion of reductions with the elementwise operators in front of them, between them and behind them.

    a -> exp -> mul -> sum                  [exp, mul, sum]
                ^                     =>
                b
    x -> square -> mean -> rsqrt -> mul     [square, mean, rsqrt, mul]
    x ------------------------------^

What lies between them is neither written nor read: a kernel sweeps over an array once for each level of
reductions, and computes anew what it needs. Members are operators that declare a computation and have no
better kernel than the loop nests made of it, and elementwise ones: chains, by the time that this pass runs.
All are computed over one domain; steps on what has fewer axes, such as a mean, join those that make it.
How groups grow says `groups.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....core.errors import ShapeError
from ....graph import Entry, Node
from ....graph.ir import Shape
from ....te.computation import (
    common_shape,
    Computation,
    needed_by,
    Node as ComputedNode,
    pruned,
    Tensor,
)
from ....te.expression import Expression
from ....te.inclusion import common_marks, included, Marks, marks_of, Refinement
from ...base import Request
from ...elementwise.formula import is_elementwise
from ...elementwise.program import broadcasts, kinds_of, program
from ...fused.computation import ComputationAttrs, FusedComputation, FusedComputationGradient
from ...fused.elementwise import FusedAttrs, FusedElementwise, FusedElementwiseGradient
from ...nests.program import computation
from ...rewrite import graph_pass, Stage, Step
from ..remat.remat_candidates import is_stage
from ..target import Target
from .groups import Fused, fused, Group, GroupSearch, outputs_of, readers_of, request_of

LEAST = 1024  # elements of a domain; below, calls cost more than memory

_CHAINS = (FusedElementwise, FusedElementwiseGradient)


@graph_pass(Stage.STEP, after=("chains", "cheap_remat"))
def reductions(step: Step, target: Target) -> Step:
    """Reductions and elementwise operators as one, where loop nests can be made of them. O(nodes)."""
    if not target.storable():
        return step
    search = _ReductionSearch(step, target)
    groups = [g for g in search.groups() if search.is_more(g)]
    if not groups:
        return step
    read = readers_of(step, groups)
    made = {g: found for g in groups if (found := search.fused(g, read)) is not None}
    return fused(step, list(made), made.__getitem__)


@dataclass(frozen=True, eq=False)
class _Member:
    """What a node computes: `nodes` of a computation read `inputs` and make `outputs`, each a number with the
    shape of its tensor. `domain`: the shape of all its axes. `is_chain`: it is made of steps alone, and
    `is_whole` if each array that it reads has the whole domain or is one number, too.
    """

    nodes: Sequence[ComputedNode]
    inputs: Mapping[str, Entry]
    outputs: Mapping[Entry, tuple[int, Shape]]
    domain: Shape
    is_chain: bool = False
    is_whole: bool = False

    def views(self, e: Entry) -> list[Shape]:
        """The shapes under which it reads an entry."""
        names = {n for n, i in self.inputs.items() if i == e}
        return [node[2] for node in self.nodes if node[0] == "input" and node[1] in names]


class _ReductionSearch(GroupSearch):
    """Groups of nodes that are computed over one domain."""

    def __init__(self, step: Step, target: Target) -> None:
        super().__init__(step)
        self.target, self.known = target, target.storable()
        self.members: dict[Node, _Member] = {}
        self.like: dict[Node, Entry] = {}  # members of fewer axes -> what they read, whose axes they have

    def key(self, node: Node) -> Any:
        if node.op is None or is_stage(node) or node.after:
            return None
        forward = node in self.forward
        if forward and not node.op.recomputable:
            return None
        member = self._member(node)
        if member is None:
            return None
        self.members[node] = member
        return prod(member.domain), forward, tuple(sorted(node.annotations.items()))

    def joins(self, node: Node, key: Any, group: Group) -> bool:
        if key[1:] != group.key[1:]:
            return False
        member = self.members[node]
        read = [e for e in node.inputs if e.node in self.group and self.group[e.node].found() is group]
        if key[0] == group.key[0]:
            marks = common_marks([marks_of(member.domain), self._marks(group)])
            if marks is None:
                return False
            own = Refinement(member.domain, marks)
            return all(broadcasts(self._shape(e, marks), own.shape(v)) for e in read for v in member.views(e))
        if not member.is_whole or not any(prod(self.graph.shapes[e]) == key[0] != 1 for e in read):
            return False
        marks = self._marks(group)
        shapes = {self._shape(e, marks) for e in read if prod(self.graph.shapes[e]) != 1}
        if len(shapes) != 1 or prod(shapes.pop()) != key[0]:
            return False
        self.like[node] = next(e for e in read if prod(self.graph.shapes[e]) != 1)
        return True

    def _marks(self, group: Group) -> Marks:
        found = common_marks(marks_of(self.members[n].domain) for n in group.members if n not in self.like)
        assert found is not None
        return found

    def _shape(self, e: Entry, marks: Marks) -> Shape:
        """The shape of a member's output in the domain with these marks."""
        while e.node in self.like:
            e = self.like[e.node]
        member = self.members[e.node]
        return Refinement(member.domain, marks).shape(member.outputs[e][1])

    def is_more(self, group: Group) -> bool:
        """True if a group of many elements is more than a chain."""
        return group.key[0] >= LEAST and not all(self.members[n].is_chain for n in group.members)

    def fused(self, group: Group, read: Mapping[Entry, set[Group | None]]) -> Fused | None:
        """The node that replaces a group; None if no loop nests can be made for it."""
        graph, t, marks = self.graph, Computation(), self._marks(group)
        values: dict[Entry, Tensor] = {}
        inputs: dict[Entry, str] = {}
        for node in group.members:
            member, like = self.members[node], self.like.get(node)
            shape = None if like is None else self._shape(like, marks)

            def seen(name: str, view: Shape, member: _Member = member, shape: Shape | None = shape) -> Tensor:
                e = member.inputs[name]
                if e in values:
                    return values[e] if shape is not None else t.broadcast(values[e], view)
                if shape is not None:
                    view = shape if prod(view) != 1 else ()
                return t.input(inputs.setdefault(e, f"arg{len(inputs)}"), view)

            refinement = Refinement(member.domain, marks) if like is None else None
            try:
                made = included(t, member.nodes, seen, refinement)
            except ShapeError:
                return None
            values.update((e, made[number]) for e, (number, _) in member.outputs.items())
        outputs, index = outputs_of(self.step, group, {e: x.number for e, x in values.items()}, read)
        nodes, numbers = pruned(t, [values[e].number for e in outputs])
        attrs = ComputationAttrs(
            nodes,
            numbers,
            tuple(graph.shapes[e] for e in outputs),
            tuple(graph.dtypes[e] for e in outputs),
            tuple(graph.dtypes[e] for e in inputs),
            tuple(self._donors(group, e, inputs) for e in outputs),
        )
        op = FusedComputation if group.key[1] else FusedComputationGradient
        shapes, dtypes = tuple(graph.shapes[e] for e in inputs), attrs.given
        for a in (attrs, replace(attrs, donors=((),) * len(outputs))):
            if self.target.has_kernel(Request(op, a, shapes, a.shapes, dtypes[0], dtypes)):
                return group.node(op, a, tuple(inputs)), index
        return None

    def _donors(self, group: Group, made: Entry, inputs: Iterable[Entry]) -> tuple[str, ...]:
        """The inputs in whose place an output may be, if it has the whole domain."""
        graph = self.graph
        if prod(graph.shapes[made]) != group.key[0]:
            return ()
        kind = graph.shapes[made], graph.dtypes[made]
        return tuple(f"arg{i}" for i, e in enumerate(inputs) if (graph.shapes[e], graph.dtypes[e]) == kind)

    def _member(self, node: Node) -> _Member | None:
        """What `node` computes; None if it cannot be part of another node."""
        graph = self.graph
        assert node.op is not None
        if node.op in _CHAINS:
            a: FusedAttrs = node.attrs
            if not all(d.name in self.known for d in (*a.dtypes, *(graph.dtypes[e] for e in node.inputs))):
                return None
            inputs = {f"x{i}": e for i, e in enumerate(node.inputs)}
            wanted = {Entry(node, i): i for i in self.wanted(node)}
            return _of_expression(a.expression, a.constants, a.views, a.shape, inputs, wanted)
        request = request_of(graph, node, self.wanted(node))
        if request is None or not self.wanted(node):
            return None
        named = dict(zip(node.input_names, node.inputs))
        results = {n: Entry(node, i) for i, n in enumerate(node.output_names) if i in self.wanted(node)}
        if is_elementwise(node.op):
            p = program(request, self.known)
            if p is not None:
                inputs = {n: named[n] for n in p.inputs}
                wanted = {results[n]: i for i, n in enumerate(p.outputs)}
                return _of_expression(p.expression, p.constants, p.views, p.shape, inputs, wanted)
        forward = node.op.forward_op or node.op
        kernel = None if forward.compute is None else self.target.kernel(request)
        kinds = kinds_of(request) if kernel is not None and kernel.is_computed else None
        found = None if kinds is None else computation(request, {n: shape for n, (shape, _) in kinds.items()})
        if found is None:
            return None
        t, made, shapes = found
        outputs = {e: made[n] for n, e in results.items()}
        return _member_of(t, named, outputs, [shapes[n] for n in results])


def _of_expression(
    expression: Expression,
    constants: Sequence[float],
    views: Sequence[Shape],
    shape: Shape,
    inputs: Mapping[str, Entry],
    outputs: Mapping[Entry, int],
) -> _Member | None:
    """What an elementwise node computes; `outputs` are entries, each with its index in the expression."""
    t = Computation()
    values = [t.input(n, v) for n, v in zip(inputs, views)]
    values += [t.constant(c) for c in constants]
    for name, *operands in expression.steps:
        values.append(t.number(operands[0]) if name == "number" else t(name, *(values[x] for x in operands)))
    made = {e: values[expression.outputs[i]] for e, i in outputs.items()}
    member = _member_of(t, inputs, made, [shape])
    is_whole = all(v == shape or prod(v) == 1 for v in views)
    return None if member is None else replace(member, is_chain=True, is_whole=is_whole)


def _member_of(
    t: Computation,
    inputs: Mapping[str, Entry],
    outputs: Mapping[Entry, Tensor],
    shapes: Sequence[Shape],
) -> _Member | None:
    """What a node computes, over a domain to which `shapes` broadcast; None where it picks elements."""
    nodes, numbers = pruned(t, [x.number for x in outputs.values()])
    kinds = {n[0] for n in nodes}
    if not kinds.isdisjoint(("gather", "scatter")):
        return None
    made = {e: (number, x.shape) for (e, x), number in zip(outputs.items(), numbers)}
    needed = needed_by(t, [x.number for x in outputs.values()])
    domain = common_shape([*(t.shapes[i] for i in needed), *shapes])
    own = {n[1]: inputs[n[1]] for n in nodes if n[0] == "input"}
    return _Member(nodes, own, made, domain)
