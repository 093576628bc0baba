"""Groups of neighbouring nodes that become one: what fusion passes share.

A group grows while the nodes are walked in their order. A node joins the groups that produced its inputs
(they are merged), or one that reads the same inputs; the group then takes the position of its last member.
That is correct as long as no node outside has read a value of the group before: such a reader closes it. A
value read outside, or kept by the user, is an output of the fused node.

A group that would move past other nodes must not keep more live meanwhile than it saves: see
`GroupSearch._costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from ....graph import Entry, Graph, Node, Op, Rewriter
from ....graph.ir import Shape
from ...base import Request
from ...rewrite import Step

MOST_MEMBERS = 48
MOST_ARRAYS = 12  # that a node needs at once: more would raise the least feasible budget


@dataclass(eq=False)
class Group:
    """Members in order, `last` the last one's position; `until`: that of a node that overwrites an input."""

    key: Any
    members: list[Node]
    last: int
    inputs: dict[Entry, None]
    until: float = inf
    closed: bool = False
    into: Group | None = field(default=None)

    def found(self) -> Group:
        """The group that this one has been merged into."""
        group = self
        while group.into is not None:
            group = group.into
        if group is not self:
            self.into = group
        return group

    def node(self, op: type[Op], attrs: Any, inputs: tuple[Entry, ...]) -> Node:
        """A node in place of all members."""
        first, end = self.members[0], self.members[-1]
        name = f"{first.name}+{end.name}"
        return Node(op, attrs, inputs, name, annotations=dict(first.annotations))


class GroupSearch:
    """The groups of a step; a pass says by `key` which nodes it takes. O(nodes)."""

    def __init__(self, step: Step) -> None:
        graph = step.graph
        self.step, self.graph, self.kept, self.forward = step, graph, step.kept, step.forward
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
        self.group: dict[Node, Group] = {}
        self.reader: dict[Entry, Group] = {}  # the last group that reads an entry from outside

    def groups(self) -> list[Group]:
        """The groups of two or more nodes."""
        found: list[Group] = []
        for node in self.number:
            key = self.key(node)
            joined = self._joined(node, key) if key is not None else None
            if joined is None and key is not None:
                joined = self.group[node] = Group(key, [], -1, {})
                found.append(joined)
            if joined is not None:
                self.take(joined, node)
            for e in (*node.inputs, *node.after):
                made_by = self.group.get(e.node)
                if made_by is not None and made_by.found() is not joined:
                    made_by.found().closed = True
        return [g for g in found if g.into is None and len(g.members) > 1]

    def key(self, node: Node) -> Any:
        """Common to all members of a group; None for a node that cannot be in one. Where its first part is a
        shape, nodes join that read one array of that shape, too.
        """
        raise NotImplementedError

    def joins(self, node: Node, key: Any, group: Group) -> bool:
        """True if `node` can be a member of `group`."""
        return bool(group.key == key)

    def merges(self, group: Group, other: Group) -> bool:
        """True if two groups that a node can join can become one."""
        return bool(group.key == other.key)

    def wanted(self, node: Node) -> list[int]:
        """The outputs of a node that are read."""
        return [i for i in range(node.num_outputs) if Entry(node, i) in self.last_use]

    def _joined(self, node: Node, key: Any) -> Group | None:
        """The group that `node` joins, merged from all that it connects."""
        near: dict[Group, None] = {}
        for e in node.inputs:
            beside = self.reader.get(e) if self.graph.shapes[e] == key[0] else None
            for group in (self.group.get(e.node), beside):
                if group is not None and self.joins(node, key, group.found()):
                    near[group.found()] = None
        at = self.number[node]
        chosen: list[Group] = []
        for group in near:
            if group.closed or group.until <= at or not self._fits([*chosen, group], node):
                continue
            if not all(self.merges(c, group) for c in chosen):
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

    def _fits(self, groups: Iterable[Group], node: Node) -> bool:
        groups = list(groups)
        members = sum(len(g.members) for g in groups)
        arrays = sum(len(g.inputs) for g in groups) + len(node.inputs)
        return members < MOST_MEMBERS and arrays + members // 2 <= MOST_ARRAYS

    def _costs(self, groups: list[Group], node: Node) -> int:
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

    def take(self, group: Group, node: Node) -> None:
        """Make a node a member of a group."""
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


Fused = tuple[Node, dict[Entry, int]]
"""The node for a group, which reads entries of the graph, and the index of its output for each entry."""


def _readers_of(step: Step, groups: Sequence[Group]) -> dict[Entry, set[Group | None]]:
    """The groups that read an entry; None among them if others do."""
    of_node = {m: g for g in groups for m in g.members}
    read: dict[Entry, set[Group | None]] = {}
    for node in step.graph.nodes:
        for e in node.inputs:
            read.setdefault(e, set()).add(of_node.get(node))
    for e in step.shown:
        read.setdefault(e, set()).add(None)
    return read


def fused(
    step: Step,
    groups: Sequence[Group],
    fuse: Callable[[Group, Mapping[Entry, set[Group | None]]], Fused | None],
) -> Step:
    """The step with one node for each group that `fuse` has one for, given which groups read an entry."""
    if not groups:
        return step
    read = _readers_of(step, groups)
    made = {g.members[-1]: (g, found) for g in groups if (found := fuse(g, read)) is not None}

    def add(result: Rewriter, node: Node) -> None:
        _, (new, entries) = made[node]
        new = replace(new, inputs=result.inputs(new))
        for old, index in entries.items():
            result.put(old, Entry(new, index))
        result.order.append(new)

    return step.substituted(made, add, gone={m for g, _ in made.values() for m in g.members})


def outputs_of(
    step: Step, group: Group, values: Mapping[Entry, int], read: Mapping[Entry, set[Group | None]]
) -> tuple[list[Entry], dict[Entry, int]]:
    """The entries among `values` that are outputs of a group's node, and the index of the output that stands
    for each: equal values are one output, unless somebody wants both.
    """
    index: dict[Entry, int] = {}
    outputs: list[Entry] = []
    same: dict[tuple[int, Any, Shape], int] = {}
    for e, number in values.items():
        if read.get(e, set()) <= {group}:
            continue
        spot = (number, step.graph.dtypes[e], step.graph.shapes[e])
        if e not in step.kept and spot in same:
            index[e] = same[spot]
            continue
        index[e] = same[spot] = len(outputs)
        outputs.append(e)
    return outputs, index
