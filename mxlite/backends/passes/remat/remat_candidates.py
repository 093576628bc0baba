"""How results of the forward pass can be made again in the backward pass, and the graph in which some are.

An array is made where it is first read, of no more bytes than it has itself or of such as others read still:
at no moment is more alive than if it were kept. Of a chain of cheap operators, as a transposition and a
reshape, all are made again.

What is made again of forward arrays alone could be made any time. It waits for another array that its first
reader reads, of the backward pass: an order of a plan is searched for between places that all must pass, and
there would be none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace
from math import inf
from typing import NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.layout import ChannelsFirst, ChannelsLast
from ...call import flops_of
from ...rewrite import Step

SCATTERED = 8
"""How many times as long a byte takes where rows do not stay rows."""

TILED = 2
"""The same where channels become the last axis, or are it no more: there is code for that."""

_MOST = 3  # operators in a chain

Again = Callable[[Graph, Node], tuple[Node, ...]]
"""Says for a node of the forward pass the nodes, in their order, the last of which makes its first output
again; none if there is no cheap way. They read what it reads, other outputs of it, and each other's."""


class Way(NamedTuple):
    """`nodes` that make an array again of what is there, and of `uses`, arrays that have ways themselves.
    `like`: the entry of the graph that what each makes is like. `cost`: bytes moved, and operations done.
    """

    nodes: tuple[Node, ...]
    uses: tuple[Entry, ...]
    like: Mapping[Entry, Entry]
    cost: float


class Reads:
    """Where arrays are read and written, by the places of nodes in the order of the graph."""

    def __init__(self, step: Step) -> None:
        graph = step.graph
        self.readers = step.readers.of
        self.early: dict[Entry, int] = {}  # last reader in the forward pass
        self.first: dict[Entry, int] = {}  # reader in the backward pass
        self.last: dict[Entry, int] = {}
        self.written: dict[Entry, int] = {}  # the first node that changes an entry
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.forward = list(step.forward)
        self.backward = frozenset(step.operators[len(self.forward) :])
        for node in step.operators:
            place, is_later = self.place[node], node in self.backward
            assert node.op is not None
            changed = node.op.mutated(node.attrs)
            for name, e in zip(node.input_names, node.inputs):
                if is_later:
                    self.first.setdefault(e, place)
                    self.last[e] = place
                else:
                    self.early[e] = place
                if name in changed:
                    self.written.setdefault(e, place)

    def made(self, node: Node) -> list[Entry]:
        """The outputs of `node` that something reads."""
        return [e for i in range(node.num_outputs) if (e := Entry(node, i)) in self.readers]


def rerun(graph: Graph, node: Node) -> tuple[Node, ...]:
    """The node itself, where it is cheap and may run twice."""
    op = node.op
    if op is None or is_stage(node) or node.forward is not None or not (op.cheap and op.recomputable):
        return ()
    return () if op.has_stream(node.attrs) or op.mutated(node.attrs) else (renamed(node),)


def is_stage(node: Node) -> bool:
    """Whether the user marks the node as the end of a stage, which is kept."""
    return "__mirror_stage__" in node.annotations


def renamed(node: Node) -> Node:
    """`node` as one that makes something again."""
    return replace(node, name=f"{node.name}_remat", annotations={})


def ways_of(step: Step, reads: Reads, again: Again, least_bytes: int) -> dict[Entry, Way]:
    """How to make again the arrays that backward reads, of which there is a cheap way, in the graph's order.

    Arrays of fewer than `least_bytes` stay. O(inputs).
    """
    graph, kept = step.graph, step.shown
    ways: dict[Entry, Way] = {}
    for node in reads.forward:
        e = Entry(node)
        if e in reads.first and e not in kept and graph.nbytes(e) >= least_bytes:
            way = _way(graph, reads, ways, kept, node, again)
            if way is not None:
                ways[e] = way
    return ways


def _way(
    graph: Graph, reads: Reads, ways: Mapping[Entry, Way], kept: Set[Entry], node: Node, again: Again
) -> Way | None:
    """How to make `node`'s output of what is there when it is first read; None if there is no way."""
    at = reads.first[Entry(node)]
    parts: dict[Node, tuple[Node, ...]] = {}
    uses: dict[Entry, None] = {}
    longer = 0  # bytes that would have to wait for that
    left = [node]
    while left:
        part = left.pop()
        if part in parts:
            continue
        found = parts[part] = again(graph, part)
        if not found or sum(map(len, parts.values())) > _MOST:
            return None
        if part is node and found[-1].op is part.op and _is_read_besides(reads, kept, part):
            return None
        for i in (i for n in found for i in n.inputs if i.node not in found):
            if reads.written.get(i, inf) < at:
                return None
            if i.node.op is None or i in kept:
                continue
            last = reads.last.get(i, -1)
            if i in ways:
                uses[i] = None
            elif last < 0 and i.index == 0:
                left.append(i.node)
                continue
            if last < at:
                longer += graph.nbytes(i)
    if longer > graph.nbytes(Entry(node)):
        return None
    order = sorted(parts, key=reads.place.__getitem__)
    like = {Entry(n): Entry(part) for part in order for n in parts[part]}
    nodes = tuple(e.node for e in like)
    return Way(nodes, tuple(uses), like, sum(_cost(graph, n, like) for n in nodes))


def _is_read_besides(reads: Reads, kept: Set[Entry], node: Node) -> bool:
    """Whether something reads other outputs of `node` than the first afterwards."""
    return any(Entry(node, i) in kept or Entry(node, i) in reads.first for i in range(1, node.num_outputs))


def _cost(graph: Graph, node: Node, like: Mapping[Entry, Entry]) -> float:
    """Bytes that a node of a way moves, and operations that it does."""
    op, made = node.op, like[Entry(node)]
    assert op is not None
    ins = [like.get(e, e) for e in node.inputs]
    outs = tuple(graph.shapes.get(Entry(made.node, i), ()) for i in range(node.num_outputs))
    flops = op.flops(node.attrs, tuple(graph.shapes[e] for e in ins), outs)
    nbytes = sum(graph.nbytes(e) for e in (*ins, made))
    if flops or not ins:
        return flops + nbytes
    if op.in_place_options(node.attrs) and (node.inputs[0] in like or node.inputs[0] in like.values()):
        return 0  # the same bytes under another shape
    if graph.shapes[ins[0]][-1:] == graph.shapes[made][-1:]:
        return nbytes
    return (TILED if op in (ChannelsLast, ChannelsFirst) else SCATTERED) * nbytes


def work_of(graph: Graph, reads: Reads, node: Node) -> float:
    """Operations of a node, as far as what it makes is read."""
    forward = node.forward or node
    assert node.op is not None
    ins = tuple(graph.shapes[e] for e in forward.inputs)
    outs = tuple(graph.shapes.get(Entry(forward, i), ()) for i in range(forward.num_outputs))
    read = [node.output_names[e.index] for e in reads.made(node)]
    return flops_of(node.op, node.attrs, (ins, outs), read)


def with_ways(step: Step, reads: Reads, ways: Mapping[Entry, Way], chosen: Collection[Entry]) -> Step:
    """The step in which the arrays `chosen` are made again. O(inputs)."""
    return _WaysRewrite(step, reads, {e: ways[e] for e in chosen}).result()


class _WaysRewrite:
    """The step in which what has a candidate is made again."""

    def __init__(self, step: Step, reads: Reads, ways: Mapping[Entry, Way]) -> None:
        self.step, self.reads, self.ways = step, reads, ways
        self.made = Rewriter(step.graph)
        self.again: dict[Entry, Entry] = {}

    def result(self) -> Step:
        for node in self.made.walk(self.step.num_forward):
            if node in self.reads.backward:
                self._renew(node)
            else:
                self.made.order.append(node)
        return self.step.rewritten(self.made)

    def _renew(self, node: Node) -> None:
        """A node of the backward pass, and in front of it what it is the first to read."""
        made = self.made
        after = made.all_of([e for e in node.inputs if e.node in self.reads.backward][:1])
        self._make(node.inputs, after)
        new = made.renewed(node)
        inputs = tuple(self.again.get(e, made.of(e)) for e in node.inputs)
        if inputs != new.inputs:
            new = replace(new, inputs=inputs)
        if new is node:
            made.order.append(node)
        else:
            made.replace(node, new)

    def _make(self, entries: Iterable[Entry], after: tuple[Entry, ...]) -> None:
        """The nodes that make those of `entries` again that are not there yet."""
        left = list(entries)
        while left:
            e = left[-1]
            if e not in self.ways or e in self.again:
                left.pop()
                continue
            way = self.ways[e]
            before = [u for u in way.uses if u in self.ways and u not in self.again]
            if before:
                left += before
                continue
            made: dict[Entry, Entry] = {}
            for n in way.nodes:
                inputs = tuple(made.get(i, self.again.get(i, i)) for i in n.inputs)
                new = replace(n, inputs=inputs, after=after)
                self.made.order.append(new)
                was = way.like[Entry(n)]
                self._put(new, was.node)
                made[Entry(n)] = made[was] = Entry(new)
            self.again[e] = made[e]

    def _put(self, node: Node, like: Node) -> None:
        """The outputs of `node` are as those of `like`; of what nobody reads they may be unknown."""
        for i in range(node.num_outputs):
            e, was = Entry(node, i), Entry(like, i)
            if was in self.made.shapes:
                self.made.shapes[e], self.made.dtypes[e] = self.made.shapes[was], self.made.dtypes[was]
