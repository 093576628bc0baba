"""Members of groups that become one computation, and the node that replaces such a group.

A member is a node that declares what it computes. Those of a group are computed over one domain, the shape
of all their axes, under which each input is viewed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ....core.errors import ShapeError
from ....graph import Entry, Node
from ....graph.ir import Shape
from ....te.computation import (
    common_shape,
    Computation,
    needed_by,
    Node as ComputedNode,
    pruned,
    REDUCTIONS,
    Tensor,
)
from ....te.inclusion import common_marks, included, Marks, marks_of, Refinement, refinement
from ...base import Request
from ...elementwise.formula import is_elementwise
from ...fused.computation import ComputationAttrs, FUSED, FusedComputation, FusedComputationGradient
from ...nests.program import can_store, computation, kinds_of
from ...rewrite import Step
from ..target import Target
from .groups import Fused, Group, GroupSearch, outputs_of, request_of

LEAST = 1024  # elements of a domain; below, calls cost more than memory


@dataclass(frozen=True, eq=False)
class Formula:
    """The computation of a call: `nodes`, and its outputs, each a number of a node with the shape of its
    tensor. `domain`: the shape of all its axes. `is_chain`: it is made of steps of elements alone, whose
    results have one shape, and `is_whole` if each array that it reads has the whole domain or is one number,
    too.
    """

    nodes: Sequence[ComputedNode]
    outputs: Mapping[str, tuple[int, Shape]]
    domain: Shape
    marks: Marks
    is_chain: bool
    is_whole: bool


@dataclass(frozen=True, eq=False)
class Member:
    """A node by its formula, whose inputs and outputs are these entries."""

    formula: Formula
    inputs: Mapping[str, Entry]
    outputs: Mapping[Entry, str]

    def views(self, e: Entry) -> list[Shape]:
        """The shapes under which it reads an entry."""
        names = {n for n, i in self.inputs.items() if i == e}
        return [node[2] for node in self.formula.nodes if node[0] == "input" and node[1] in names]


class MemberSearch(GroupSearch):
    """Groups of nodes that are computed over one domain."""

    def __init__(self, step: Step, target: Target) -> None:
        super().__init__(step)
        self.target, self.known, self.least = target, target.storable(), LEAST
        self.members: dict[Node, Member] = {}
        self.like: dict[Node, Entry] = {}  # members of fewer axes -> what they read, whose axes they have
        self._domains: dict[Group, tuple[int, Marks]] = {}

    def member(self, node: Node) -> Member | None:
        """`node` as a member of groups; None if it cannot be one."""
        wanted = self.wanted(node)
        request = request_of(self.graph, node, wanted) if wanted else None
        if request is None:
            return None
        formula = _formula_of(request, repr(node.attrs), self.known)
        if formula is None or not (formula.is_chain or self._is_computed(request)):
            return None
        results = {Entry(node, i): node.output_names[i] for i in wanted}
        found = self.members[node] = Member(formula, dict(zip(node.input_names, node.inputs)), results)
        return found

    def _is_computed(self, request: Request) -> bool:
        """True if there is no better kernel than the loop nests made of what the operator declares."""
        kernel = self.target.kernel(request)
        return kernel is not None and kernel.is_computed

    def marks(self, group: Group) -> Marks:
        """The marks of the domain of a group's members."""
        known, marks = self._domains.get(group, (0, frozenset[int]()))
        new = [self.members[n].formula.marks for n in group.members[known:] if n not in self.like]
        if new:
            found = common_marks([marks, *new])
            assert found is not None
            marks = found
        self._domains[group] = len(group.members), marks
        return marks

    def shape(self, e: Entry, marks: Marks) -> Shape:
        """The shape of a member's output in the domain with these marks."""
        while e.node in self.like:
            e = self.like[e.node]
        member = self.members[e.node]
        formula = member.formula
        return refinement(formula.domain, marks).shape(formula.outputs[member.outputs[e]][1])

    @staticmethod
    def _refined(formula: Formula, marks: Marks) -> Refinement | None:
        """How shapes of a formula look in the domain with these marks; None: as they are."""
        found = refinement(formula.domain, marks)
        return None if found.lengths == formula.domain else found

    def is_chain(self, group: Group) -> bool:
        """True for a group of steps of elements alone."""
        return all(self.members[n].formula.is_chain for n in group.members)

    def fused(self, group: Group, read: Mapping[Entry, set[Group | None]]) -> Fused | None:
        """The node that replaces a group; None if no loop nests can be made for it."""
        graph, t, marks = self.graph, Computation(), self.marks(group)
        values: dict[Entry, Tensor] = {}
        inputs: dict[Entry, str] = {}
        for node in group.members:
            member, like = self.members[node], self.like.get(node)
            shape = None if like is None else self.shape(like, marks)

            def seen(name: str, view: Shape, member: Member = member, shape: Shape | None = shape) -> Tensor:
                e = member.inputs[name]
                if e in values:
                    is_seen = shape is not None or values[e].shape == view
                    return values[e] if is_seen else t.broadcast(values[e], view)
                if shape is not None:
                    view = shape if prod(view) != 1 else ()
                return t.input(inputs.setdefault(e, f"arg{len(inputs)}"), view)

            formula = member.formula
            refined = self._refined(formula, marks) if like is None else None
            try:
                made = included(t, formula.nodes, seen, refined)
            except ShapeError:
                return None
            for e, name in member.outputs.items():
                if name in formula.outputs:
                    values[e] = made[formula.outputs[name][0]]
        outputs, index = outputs_of(self.step, group, {e: x.number for e, x in values.items()}, read)
        nodes, numbers = pruned(t, [values[e].number for e in outputs])
        given, types = (tuple([graph.dtypes[e] for e in entries]) for entries in (inputs, outputs))
        shapes = tuple([graph.shapes[e] for e in outputs])
        attrs = ComputationAttrs(nodes, numbers, shapes, types, given)
        op = FusedComputation if group.members[0] in self.forward else FusedComputationGradient
        if self.is_chain(group):
            return group.node(op, attrs, tuple(inputs)), index
        read_shapes = tuple(graph.shapes[e] for e in inputs)
        for a in (attrs, replace(attrs, in_place=False)):
            if self.target.has_kernel(Request(op, a, read_shapes, shapes, given[0], given)):
                return group.node(op, a, tuple(inputs)), index
        return None


@lru_cache(maxsize=2048)
def _formula_of(request: Request, spelled: str, known: frozenset[str]) -> Formula | None:
    """The formula of an operator that declares what it computes, where generated code loads and stores the
    types `known`; None where it picks elements, or scans. `spelled` are its attributes as text: 0.0 and -0.0
    are equal, but not the same constant.
    """
    kinds = kinds_of(request)
    found = computation(request)
    if found is None or kinds is None:
        return None
    t, made, whole = found
    outputs = {n: x for n, x in made.items() if request.is_used(n) and x is not None}
    roots = [x.number for x in outputs.values()]
    nodes, numbers = pruned(t, roots)
    names = {n[0] for n in nodes}
    if not names.isdisjoint(("gather", "scatter", "scan")):
        return None
    domain = common_shape([*(t.shapes[i] for i in needed_by(t, roots)), *(whole[n] for n in outputs)])
    views = [n[2] for n in nodes if n[0] == "input"]
    read = [kinds[n[1]][1] for n in nodes if n[0] == "input" and n[1] in kinds]
    of_elements = request.op in FUSED or is_elementwise(request.op)
    is_chain = (
        of_elements
        and bool(outputs)
        and names.isdisjoint(REDUCTIONS)
        and {prod(kinds[n][0]) for n in outputs} == {prod(domain)} != {0}
        and can_store(read, [kinds[n][1] for n in outputs], known)
    )
    return Formula(
        nodes,
        {n: (number, x.shape) for (n, x), number in zip(outputs.items(), numbers)},
        domain,
        marks_of(domain),
        is_chain,
        is_chain and all(prod(v) in (1, prod(domain)) for v in views),
    )
