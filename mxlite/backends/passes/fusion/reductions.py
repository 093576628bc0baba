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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from ....core.dtype import as_dtype
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
from ....te.inclusion import common_marks, included, Marks, marks_of, refinement
from ...base import Request
from ...elementwise.formula import is_elementwise
from ...elementwise.program import broadcasts, FLOATS, kinds_of, program
from ...fused.computation import ComputationAttrs, FusedComputation, FusedComputationGradient
from ...fused.elementwise import FusedAttrs, FusedElementwise, FusedElementwiseGradient
from ...nests.program import computation
from ...rewrite import graph_pass, Stage, Step
from ..remat.remat_candidates import is_stage
from ..target import Target
from .groups import Fused, fused, Group, GroupSearch, outputs_of, readers_of, request_of

LEAST = 1024  # elements of a domain; below, calls cost more than memory

_CHAINS = (FusedElementwise, FusedElementwiseGradient)
_FLOATS = frozenset(map(as_dtype, FLOATS))


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
class _Formula:
    """The computation of a call: `nodes`, and its outputs, each a number of a node with the shape of its
    tensor. `domain`: the shape of all its axes. `is_chain`: it is made of steps alone, and `is_whole` if each
    array that it reads has the whole domain or is one number, too.
    """

    nodes: Sequence[ComputedNode]
    outputs: Mapping[str, tuple[int, Shape]]
    domain: Shape
    marks: Marks
    is_chain: bool = False
    is_whole: bool = False


@dataclass(frozen=True, eq=False)
class _Member:
    """A node by its formula, whose inputs and outputs are these entries."""

    formula: _Formula
    inputs: Mapping[str, Entry]
    outputs: Mapping[Entry, str]

    def views(self, e: Entry) -> list[Shape]:
        """The shapes under which it reads an entry."""
        names = {n for n, i in self.inputs.items() if i == e}
        return [node[2] for node in self.formula.nodes if node[0] == "input" and node[1] in names]


class _ReductionSearch(GroupSearch):
    """Groups of nodes that are computed over one domain."""

    def __init__(self, step: Step, target: Target) -> None:
        super().__init__(step)
        self.target, self.known = target, target.storable()
        self.near = self._near()
        self.members: dict[Node, _Member] = {}
        self.like: dict[Node, Entry] = {}  # members of fewer axes -> what they read, whose axes they have
        self._domains: dict[Group, tuple[int, Marks]] = {}

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
            if op not in _CHAINS and forward.compute is None:
                continue
            makers = [e.node for e in node.inputs if e.node in beside]
            for maker in makers:
                beside[maker].append(node)
            beside[node] = makers
            if op not in _CHAINS and not (forward.elementwise and self._is_chain(node)):
                more.append(node)
        found = set(more)
        while more:
            for other in beside[more.pop()]:
                if other not in found:
                    found.add(other)
                    more.append(other)
        return found

    def _is_chain(self, node: Node) -> bool:
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
        member = self._member(node)
        if member is None:
            return None
        self.members[node] = member
        return prod(member.formula.domain), forward, tuple(sorted(node.annotations.items()))

    def joins(self, node: Node, key: Any, group: Group) -> bool:
        if key[1:] != group.key[1:]:
            return False
        member, marks = self.members[node], self._marks(group)
        read = self._read(node, group)
        if key[0] == group.key[0]:
            both = common_marks([member.formula.marks, marks])
            if both is None:
                return False
            own = refinement(member.formula.domain, both)
            return all(broadcasts(self._shape(e, both), own.shape(v)) for e in read for v in member.views(e))
        shapes = {self._shape(e, marks) for e in read if prod(self.graph.shapes[e]) != 1}
        return member.formula.is_whole and len(shapes) == 1 and prod(shapes.pop()) == key[0]

    def merges(self, group: Group, other: Group) -> bool:
        """True if they have one domain. A node may have joined one of them as a member of fewer axes."""
        return super().merges(group, other) and common_marks(map(self._marks, (group, other))) is not None

    def take(self, group: Group, node: Node) -> None:
        if prod(self.members[node].formula.domain) != group.key[0]:
            made = (e for e in self._read(node, group) if prod(self.graph.shapes[e]) != 1)
            self.like[node] = next(made)
        super().take(group, node)

    def _read(self, node: Node, group: Group) -> list[Entry]:
        """The inputs of a node that a group makes."""
        return [e for e in node.inputs if e.node in self.group and self.group[e.node].found() is group]

    def _marks(self, group: Group) -> Marks:
        """The marks of the domain of a group's members."""
        known, marks = self._domains.get(group, (0, frozenset[int]()))
        new = [self.members[n].formula.marks for n in group.members[known:] if n not in self.like]
        if new:
            found = common_marks([marks, *new])
            assert found is not None
            marks = found
        self._domains[group] = len(group.members), marks
        return marks

    def _shape(self, e: Entry, marks: Marks) -> Shape:
        """The shape of a member's output in the domain with these marks."""
        while e.node in self.like:
            e = self.like[e.node]
        member = self.members[e.node]
        formula = member.formula
        return refinement(formula.domain, marks).shape(formula.outputs[member.outputs[e]][1])

    def is_more(self, group: Group) -> bool:
        """True if a group of many elements is more than a chain."""
        return group.key[0] >= LEAST and not all(self.members[n].formula.is_chain for n in group.members)

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

            formula = member.formula
            refined = refinement(formula.domain, marks) if like is None else None
            try:
                made = included(t, formula.nodes, seen, refined)
            except ShapeError:
                return None
            values.update(
                (e, made[formula.outputs[n][0]]) for e, n in member.outputs.items() if n in formula.outputs
            )
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
        """`node` as a member of groups; None if it cannot be one."""
        graph, op = self.graph, node.op
        assert op is not None
        wanted = self.wanted(node)
        if op in _CHAINS:
            a: FusedAttrs = node.attrs
            if not all(d.name in self.known for d in (*a.dtypes, *(graph.dtypes[e] for e in node.inputs))):
                return None
            return _chained(a.expression, a.constants, a.views, a.shape, node.inputs, node.outputs)
        request = request_of(graph, node, wanted) if wanted else None
        if request is None:
            return None
        named = dict(zip(node.input_names, node.inputs))
        results = {n: Entry(node, i) for i, n in enumerate(node.output_names) if i in wanted}
        p = program(request, self.known) if is_elementwise(op) else None
        if p is not None:
            made = [results[n] for n in p.outputs]
            return _chained(p.expression, p.constants, p.views, p.shape, [named[n] for n in p.inputs], made)
        if (op.forward_op or op).compute is None:
            return None
        kernel = self.target.kernel(request)
        formula = (
            None if kernel is None or not kernel.is_computed else _of_operator(request, repr(node.attrs))
        )
        return None if formula is None else _Member(formula, named, {e: n for n, e in results.items()})


def _chained(
    expression: Expression,
    constants: tuple[float, ...],
    views: tuple[Shape, ...],
    shape: Shape,
    inputs: Sequence[Entry],
    outputs: Sequence[Entry],
) -> _Member:
    """An elementwise node."""
    formula = _of_expression(expression, repr(constants), constants, views, shape)
    given = {f"x{i}": e for i, e in enumerate(inputs)}
    return _Member(formula, given, {e: f"y{i}" for i, e in enumerate(outputs)})


@lru_cache(maxsize=2048)
def _of_expression(
    expression: Expression, spelled: str, constants: tuple[float, ...], views: tuple[Shape, ...], shape: Shape
) -> _Formula:
    """`spelled` are the constants as text: 0.0 and -0.0 are equal, but not the same."""
    t = Computation()
    inputs = [t.input(f"x{i}", v) for i, v in enumerate(views)]
    made = {f"y{i}": x for i, x in enumerate(expression.written(t, inputs, constants))}
    formula = _formula(t, made, [shape])
    assert formula is not None
    is_whole = all(v == shape or prod(v) == 1 for v in views)
    return replace(formula, is_chain=True, is_whole=is_whole)


@lru_cache(maxsize=2048)
def _of_operator(request: Request, spelled: str) -> _Formula | None:
    """The formula of an operator that declares a computation; `spelled` are its attributes as text."""
    kinds = kinds_of(request)
    found = None if kinds is None else computation(request, {n: shape for n, (shape, _) in kinds.items()})
    if found is None:
        return None
    t, made, shapes = found
    outputs = {n: x for n, x in made.items() if request.is_used(n) and x is not None}
    return _formula(t, outputs, [shapes[n] for n in outputs])


def _formula(t: Computation, outputs: Mapping[str, Tensor], shapes: Sequence[Shape]) -> _Formula | None:
    """Over a domain to which `shapes` broadcast; None where it picks elements, or scans."""
    roots = [x.number for x in outputs.values()]
    nodes, numbers = pruned(t, roots)
    if not {n[0] for n in nodes}.isdisjoint(("gather", "scatter", "scan")):
        return None
    made = {n: (number, x.shape) for (n, x), number in zip(outputs.items(), numbers)}
    domain = common_shape([*(t.shapes[i] for i in needed_by(t, roots)), *shapes])
    return _Formula(nodes, made, domain, marks_of(domain))
