"""Candidates for rematerialization: results of the forward pass that can be recomputed in the backward pass.

An array is recomputed where it is first read. Its inputs either are live there anyway or have no more bytes
than the array itself, so at no step is more live than if the array were kept. A chain of cheap operators,
such as a transposition and a reshape, is recomputed as a whole.

A recomputation that reads only forward arrays could run at any time. It is made to wait for another input of
its first reader, one from the backward pass: the planner searches for an order between places that every
order passes, and without the wait there would be none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from math import inf
from typing import NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.layout import ChannelsFirst, ChannelsLast
from ....ops.scratch import accumulator
from ...call import flops_of
from ...fused.computation import FusedComputation
from ...rewrite import Step

SCATTERED = 8
"""Cost of a byte, relative to a copy, if rows do not stay rows."""

TILED = 2
"""The same if channels move to the last axis or away from it: there is code for that."""

JOINED = 1.5
"""The same if arrays are joined along their last axis, or cut, in runs of at least `LINE` bytes."""

LINE = 64
"""Bytes of a cache line."""

SMALL = 64
"""How many times as many bytes an array has as one that stays live for its recomputation, at least."""

_MOST = 3  # operators in a chain

RematRule = Callable[[Graph, Entry], tuple[Node, ...]]
"""Gives for an output of a forward node the nodes, in their order, the last of which recomputes it as its
first output; none if that is not cheap. They read inputs of the node, other outputs of it, and each other's
outputs."""


class RematCandidate(NamedTuple):
    """`nodes` that recompute an array from live arrays and from `uses`, arrays that have candidates
    themselves.

    `like` maps the output of each node to the entry of the graph with its shape and type; `cost` is the
    number of bytes moved plus that of operations done.
    """

    nodes: tuple[Node, ...]
    uses: tuple[Entry, ...]
    like: Mapping[Entry, Entry]
    cost: float


class Reads:
    """The places, in the order of the graph's nodes, at which arrays are read and written."""

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
        return [e for e in node.outputs if e in self.readers]


def rerun(graph: Graph, e: Entry) -> tuple[Node, ...]:
    """The node of an output itself, where it is cheap and may run twice; of a chain with several results the
    part that makes this one, from the others where they are what it follows from.
    """
    node = e.node
    op = node.op
    if op is None or is_stage(node) or node.forward is not None or not (op.cheap and op.recomputable):
        return ()
    if op.has_stream(node.attrs) or op.mutated(node.attrs):
        return ()
    if op is FusedComputation and node.num_outputs > 1:
        return _part_of_fused(graph, e)
    return (renamed(node),) if e.index == 0 else ()


def _part_of_fused(graph: Graph, e: Entry) -> tuple[Node, ...]:
    """The node that makes one result of several; none where those that are stored have been rounded."""
    node, a = e.node, e.node.attrs
    if any(accumulator(graph.dtypes[y]) != graph.dtypes[y] for y in node.outputs):
        return ()
    attrs, places = a.part([e.index], from_others=True)
    count = len(node.inputs)
    inputs = tuple(node.inputs[i] if i < count else Entry(node, i - count) for i in places)
    return (replace(renamed(node), attrs=attrs, inputs=inputs),)


def is_stage(node: Node) -> bool:
    """True if the user marks the node as the end of a stage, which is kept."""
    return "__mirror_stage__" in node.annotations


def renamed(node: Node) -> Node:
    """`node` under the name of a recomputation."""
    return replace(node, name=f"{node.name}_remat", annotations={})


def find_candidates(
    step: Step, reads: Reads, rule: RematRule, least_bytes: int
) -> dict[Entry, RematCandidate]:
    """Candidates for the arrays that backward reads and that are cheap to recompute, in the graph's order.

    Arrays of fewer than `least_bytes` stay. O(inputs).
    """
    graph, kept = step.graph, step.shown
    candidates: dict[Entry, RematCandidate] = {}
    for e in (Entry(node, i) for node in reads.forward for i in range(node.num_outputs)):
        if e in reads.first and e not in kept and graph.nbytes(e) >= least_bytes:
            candidate = _candidate(graph, reads, candidates, kept, e, rule)
            if candidate is not None:
                candidates[e] = candidate
    return candidates


def _candidate(
    graph: Graph,
    reads: Reads,
    candidates: Mapping[Entry, RematCandidate],
    kept: Set[Entry],
    e: Entry,
    rule: RematRule,
) -> RematCandidate | None:
    """The candidate that recomputes `e` where it is first read; None if there is none."""
    at = reads.first[e]
    parts: dict[Entry, tuple[Node, ...]] = {}
    uses: dict[Entry, None] = {}
    longer = 0  # bytes that would be live longer for it
    left = [e]
    while left:
        part = left.pop()
        if part in parts:
            continue
        found = parts[part] = rule(graph, part)
        if not found or sum(map(len, parts.values())) > _MOST:
            return None
        again = found[-1]
        if part == e and again.num_outputs > 1 and again.op is e.node.op and _is_read_besides(reads, kept, e):
            return None
        for i in (i for n in found for i in n.inputs if i.node not in found):
            if reads.written.get(i, inf) < at:
                return None
            if i.node.op is None or i in kept:
                continue
            last = reads.last.get(i, -1)
            if i in candidates:
                uses[i] = None
            elif last < 0 and i.node is not part.node and not is_small(graph, i, beside=e):
                left.append(i)
                continue
            if last < at:
                longer += graph.nbytes(i)
    if longer > graph.nbytes(e):
        return None
    order = sorted(parts, key=lambda part: reads.place[part.node])
    like = {Entry(n): part for part in order for n in parts[part]}
    nodes = tuple(e.node for e in like)
    return RematCandidate(nodes, tuple(uses), like, sum(_cost(graph, n, like) for n in nodes))


def is_small(graph: Graph, e: Entry, beside: Entry) -> bool:
    """True if `e` may stay live for the sake of `beside`, such as a mean for each channel."""
    return graph.nbytes(e) * SMALL <= graph.nbytes(beside)


def _is_read_besides(reads: Reads, kept: Set[Entry], e: Entry) -> bool:
    """True if backward or the user reads other outputs of the node that makes `e`."""
    others = (o for i in range(e.node.num_outputs) if (o := Entry(e.node, i)) != e)
    return any(o in kept or o in reads.first for o in others)


def _cost(graph: Graph, node: Node, like: Mapping[Entry, Entry]) -> float:
    """Bytes that a node of a candidate moves, plus operations that it does."""
    op, made = node.op, like[Entry(node)]
    assert op is not None
    ins = [like.get(e, e) for e in node.inputs]
    outs = tuple(graph.shapes.get(Entry(made.node, i), ()) for i in range(node.num_outputs))
    flops = op.flops(node.attrs, tuple(graph.shapes[e] for e in ins), outs)
    nbytes = sum(graph.nbytes(e) for e in (*ins, made))
    if flops or not ins:
        return flops + nbytes
    if op.in_place_options(node.attrs):  # the same bytes under another shape
        return 0 if node.inputs[0] in like or node.inputs[0] in like.values() else nbytes
    if graph.shapes[ins[0]][-1:] == graph.shapes[made][-1:]:
        return nbytes
    if _keeps_runs(graph, ins, made):
        return JOINED * nbytes
    return (TILED if op in (ChannelsLast, ChannelsFirst) else SCATTERED) * nbytes


def _keeps_runs(graph: Graph, ins: Sequence[Entry], made: Entry) -> bool:
    """True if `made` is joined of `ins`, or cut from one, along one axis in runs of at least a cache line."""
    shape = graph.shapes[made]
    for e in ins:
        other = graph.shapes[e]
        if len(other) != len(shape) or sum(a != b for a, b in zip(other, shape)) > 1:
            return False
    least = min((shape[-1], *(graph.shapes[e][-1] for e in ins)), default=0)
    return least * graph.dtypes[made].itemsize >= LINE


def work_of(graph: Graph, reads: Reads, node: Node) -> float:
    """Operations of a node for those of its outputs that are read."""
    forward = node.forward or node
    assert node.op is not None
    ins = tuple(graph.shapes[e] for e in forward.inputs)
    outs = tuple(graph.shapes.get(e, ()) for e in forward.outputs)
    read = [node.output_names[e.index] for e in reads.made(node)]
    return flops_of(node.op, node.attrs, (ins, outs), read)


def with_remat(
    step: Step, reads: Reads, candidates: Mapping[Entry, RematCandidate], chosen: Collection[Entry]
) -> Step:
    """The step in which the arrays `chosen` are recomputed. O(inputs)."""
    return _RematRewrite(step, reads, {e: candidates[e] for e in chosen}).result()


class _RematRewrite:
    """The step in which every array with a candidate is recomputed."""

    def __init__(self, step: Step, reads: Reads, candidates: Mapping[Entry, RematCandidate]) -> None:
        self.step, self.reads, self.candidates = step, reads, candidates
        self.made = Rewriter(step.graph)
        self.remat: dict[Entry, Entry] = {}

    def result(self) -> Step:
        for node in self.made.walk(self.step.num_forward):
            if node in self.reads.backward:
                self._renew(node)
            else:
                self.made.order.append(node)
        return self.step.rewritten(self.made)

    def _renew(self, node: Node) -> None:
        """Add a node of the backward pass, after the recomputations that it is the first to read."""
        made = self.made
        after = made.all_of([e for e in node.inputs if e.node in self.reads.backward][:1])
        self._make(node.inputs, after)
        new = made.renewed(node)
        inputs = tuple(self.remat.get(e, made.of(e)) for e in node.inputs)
        if inputs != new.inputs:
            new = replace(new, inputs=inputs)
        if new is node:
            made.order.append(node)
        else:
            made.replace(node, new)

    def _make(self, entries: Iterable[Entry], after: tuple[Entry, ...]) -> None:
        """Add the nodes that recompute `entries`, as far as they are not there yet."""
        left = list(entries)
        while left:
            e = left[-1]
            if e not in self.candidates or e in self.remat:
                left.pop()
                continue
            candidate = self.candidates[e]
            before = [u for u in candidate.uses if u in self.candidates and u not in self.remat]
            if before:
                left += before
                continue
            made: dict[Entry, Entry] = {}
            for n in candidate.nodes:
                inputs = tuple(made.get(i, self.remat.get(i, i)) for i in n.inputs)
                new = replace(n, inputs=inputs, after=after)
                self.made.order.append(new)
                was = candidate.like[Entry(n)]
                self._put(new, was)
                made[Entry(n)] = made[was] = Entry(new)
            self.remat[e] = made[e]

    def _put(self, node: Node, like: Entry) -> None:
        """Give the first output of `node` the shape and type of `like`, and others those of its node's."""
        for i in range(node.num_outputs):
            e, was = Entry(node, i), Entry(like.node, i) if i else like
            if was in self.made.shapes:
                self.made.shapes[e], self.made.dtypes[e] = self.made.shapes[was], self.made.dtypes[was]
