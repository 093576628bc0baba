"""Fusion of consecutive elementwise operators into one node, which reads and writes memory once.

    conv -> bn -> add -> relu -> conv         conv -> bn -> [add, relu] -> conv
                  ^                     =>                  ^
              shortcut                                  shortcut

A group grows while the nodes are walked in their order. A node joins the groups that produced its inputs
(they are merged), or one that reads the same inputs; the group then takes the position of its last member.
That is correct as long as no node outside has read a value of the group before: such a reader closes it. A
value read outside, or kept by the user, is an output of the fused node.

Groups contain nodes of one shape, on one side of the border between forward and backward, and with the same
annotations. A group that would move past other nodes must not keep more live meanwhile than it saves: see
`_Chains._costs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.ir import Shape
from ....te.expression import ExpressionValue, Writer
from ...base import Request
from ...elementwise.formula import is_elementwise, view_of, write
from ...elementwise.program import program
from ...fused.elementwise import FusedAttrs, FusedElementwise, FusedElementwiseGradient
from ...rewrite import graph_pass, Stage, Step
from ..target import Target

LEAST = 1024  # elements; below, calls cost more than memory
MOST_MEMBERS = 48
MOST_ARRAYS = 12  # that a node needs at once: more would raise the least feasible budget


@graph_pass(
    Stage.STEP,
    after=(
        "inline_gradient_casts",
        "dense_epilogue",
        "add_epilogue",
        "gradient_updates",
        "sample_tiles",
        "accumulate_gradients",
        "inline_remat",
    ),
)
def chains(step: Step, target: Target) -> Step:
    """Chains of elementwise operators as one, where code can be generated for them. O(nodes)."""
    known = target.storable()
    groups = _Chains(step, known).groups() if known else []
    return _rewritten(step, groups) if groups else step


@dataclass(eq=False)
class _Group:
    """Members in order, `last` the last one's position; `until`: that of a node that overwrites an input."""

    key: Any
    members: list[Node]
    last: int
    inputs: dict[Entry, None]
    until: float = inf
    closed: bool = False
    into: _Group | None = field(default=None)

    def found(self) -> _Group:
        """The group that this one has been merged into."""
        group = self
        while group.into is not None:
            group = group.into
        if group is not self:
            self.into = group
        return group


class _Chains:
    def __init__(self, step: Step, known: frozenset[str]) -> None:
        """`known` are the dtypes that the backend's code can load and store."""
        graph = step.graph
        self.graph, self.kept, self.forward, self.known = graph, step.kept, step.forward, known
        self.number: dict[Node, int] = {}  # operator nodes, in their order
        self.last_use: dict[Entry, float] = {}
        self.written: dict[Entry, float] = {}  # the first node that changes an entry
        for node in graph.nodes:
            if node.op is None:
                continue
            at = self.number[node] = len(self.number)
            for e in node.inputs:
                self.last_use[e] = at
            changed = set(node.op.mutated(node.attrs))
            if changed:
                for name, e in zip(node.input_names, node.inputs):
                    if name in changed:
                        self.written.setdefault(e, at)
        for e in step.shown:
            self.last_use[e] = inf
        self.group: dict[Node, _Group] = {}
        self.reader: dict[Entry, _Group] = {}  # the last group that reads an entry from outside

    def groups(self) -> list[_Group]:
        """The groups of two or more nodes."""
        found: list[_Group] = []
        for node in self.number:
            key = self._key(node)
            joined = self._joined(node, key) if key is not None else None
            if joined is None and key is not None:
                joined = self.group[node] = _Group(key, [], -1, {})
                found.append(joined)
            if joined is not None:
                self._take(joined, node)
            for e in (*node.inputs, *node.after):
                made_by = self.group.get(e.node)
                if made_by is not None and made_by.found() is not joined:
                    made_by.found().closed = True
        return [g for g in found if g.into is None and len(g.members) > 1]

    def _key(self, node: Node) -> Any:
        """Key common to all members of a group; None for a node that cannot be in one."""
        if node.op is None or not is_elementwise(node.op) or not self._is_large(node):
            return None
        request = request_of(self.graph, node, self._wanted(node))
        p = None if request is None else program(request, self.known)
        if p is None or prod(p.shape) < LEAST:
            return None
        forward = node in self.forward
        if forward and not (node.op.recomputable and node.op.cheap):
            return None
        return p.shape, forward, tuple(sorted(node.annotations.items()))

    def _is_large(self, node: Node) -> bool:
        """True if there is an array of LEAST elements: faster to check than how they broadcast."""
        forward = node.forward or node
        made = forward.outputs
        return any(prod(self.graph.shapes[e]) >= LEAST for e in (*forward.inputs, *made))

    def _wanted(self, node: Node) -> list[int]:
        return [i for i in range(node.num_outputs) if Entry(node, i) in self.last_use]

    def _joined(self, node: Node, key: Any) -> _Group | None:
        """The group that `node` joins, merged from all that it connects."""
        near: dict[_Group, None] = {}
        for e in node.inputs:
            beside = self.reader.get(e) if self.graph.shapes[e] == key[0] else None
            for group in (self.group.get(e.node), beside):
                if group is not None and group.found().key == key:
                    near[group.found()] = None
        at = self.number[node]
        chosen: list[_Group] = []
        for group in near:
            if group.closed or group.until <= at or not self._fits([*chosen, group], node):
                continue
            if self._costs([*chosen, group], node) <= 0:
                chosen.append(group)
        if not chosen:
            return None
        first, *rest = chosen
        for other in rest:
            first.members += other.members
            first.inputs |= other.inputs
            first.until = min(first.until, other.until)
            first.last = max(first.last, other.last)
            other.into = first
        return first

    def _fits(self, groups: Iterable[_Group], node: Node) -> bool:
        groups = list(groups)
        members = sum(len(g.members) for g in groups)
        arrays = sum(len(g.inputs) for g in groups) + len(node.inputs)
        return members < MOST_MEMBERS and arrays + members // 2 <= MOST_ARRAYS

    def _costs(self, groups: list[_Group], node: Node) -> int:
        """Bytes that are live longer, less those that are live shorter, if the groups wait until `node`."""
        at = self.number[node]
        inside = {m for g in groups for m in g.members}
        longer = 0
        for group in groups:
            own = sum(self.number[m] > group.last for m in inside)
            if at - group.last - 1 == own:
                continue  # nothing runs in between
            for e in group.inputs:
                if e.node.op is not None and self.last_use[e] < at and e not in self.kept:
                    longer += self.graph.nbytes(e)
            for m in group.members:
                for i in range(m.num_outputs):
                    if at <= self.last_use.get(Entry(m, i), -1) < inf:
                        longer -= self.graph.nbytes(Entry(m, i))
        return longer

    def _take(self, group: _Group, node: Node) -> None:
        group.members.append(node)
        group.last = self.number[node]
        self.group[node] = group
        for e in node.inputs:
            made_by = self.group.get(e.node)
            if made_by is None or made_by.found() is not group:
                group.inputs[e] = None
                group.until = min(group.until, self.written.get(e, inf))
                self.reader[e] = group


def request_of(graph: Graph, node: Node, wanted: Iterable[int]) -> Request | None:
    """A backend's request for a node of which the outputs `wanted` are read."""
    forward = node.forward or node
    assert node.op is not None and forward.op is not None
    if not forward.inputs or forward.absent:
        return None
    dtypes = tuple(graph.dtypes[e] for e in forward.inputs)
    names = node.output_names
    return Request(
        node.op,
        node.attrs,
        tuple(graph.shapes[e] for e in forward.inputs),
        tuple(graph.shapes[e] for e in forward.outputs),
        dtypes[0],
        dtypes,
        frozenset((*node.input_names, *(names[i] for i in wanted))),
    )


def _rewritten(step: Step, groups: list[_Group]) -> Step:
    """The step with one node for each group."""
    graph = step.graph
    of_node = {m: g for g in groups for m in g.members}
    read: dict[Entry, set[_Group | None]] = {}  # groups that read an entry; None if others do
    for node in graph.nodes:
        for e in node.inputs:
            read.setdefault(e, set()).add(of_node.get(node))
    for e in step.shown:
        read.setdefault(e, set()).add(None)
    last = {g.members[-1]: g for g in groups}

    def add(result: Rewriter, node: Node) -> None:
        new, made = _fused(graph, last[node], read, step.kept, result.moved)
        for old, index in made.items():
            result.put(old, Entry(new, index))
        result.order.append(new)

    return step.substituted(last, add, gone=of_node)


def _fused(
    graph: Graph,
    group: _Group,
    read: Mapping[Entry, set[_Group | None]],
    kept: frozenset[Entry],
    entry_of: Mapping[Entry, Entry],
) -> tuple[Node, dict[Entry, int]]:
    """The node that replaces a group, and the index of its output for each entry."""
    shape: Shape = group.key[0]
    w = Writer()
    values: dict[Entry, ExpressionValue] = {}  # results of members
    inputs: dict[tuple[Entry, Shape], ExpressionValue] = {}  # their inputs, under each shape in use
    for node in group.members:
        assert node.op is not None
        ignored = node.op.shape_only_names(node.attrs)
        given: dict[str, ExpressionValue] = {}
        for name, e in zip(node.input_names, node.inputs):
            if name in ignored:
                continue
            if e in values:
                given[name] = values[e]
                continue
            place = (e, view_of(node.op, node.attrs, name, graph.shapes[e], shape))
            if place not in inputs:
                inputs[place] = w.input()
            given[name] = inputs[place]
        forward = node.forward or node
        made = write(w, node.op, node.attrs, given, graph.dtypes[forward.inputs[0]])
        assert made is not None
        for i, name in enumerate(node.output_names):
            if name in made:
                values[Entry(node, i)] = made[name]
    index: dict[Entry, int] = {}
    outputs: list[Entry] = []
    same: dict[tuple[int, Any], int] = {}
    for e, value in values.items():
        if read.get(e, set()) <= {group}:
            continue
        spot = (value.number, graph.dtypes[e])
        if e not in kept and spot in same:
            index[e] = same[spot]
            continue
        index[e] = same[spot] = len(outputs)
        outputs.append(e)
    expression, constants = w.expression([values[e] for e in outputs])
    attrs = FusedAttrs(
        expression, constants, tuple(v for _, v in inputs), shape, tuple(graph.dtypes[e] for e in outputs)
    )
    first, end = group.members[0], group.members[-1]
    op = FusedElementwise if group.key[1] else FusedElementwiseGradient
    node = Node(
        op,
        attrs,
        tuple(entry_of.get(e, e) for e, _ in inputs),
        f"{first.name}+{end.name}",
        annotations=dict(first.annotations),
    )
    return node, index
