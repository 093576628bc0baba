"""What a cheap operator makes of arrays that are kept anyway is not kept: the backward pass makes it again.

    x -> LayerNorm -> y -> FullyConnected             x -> LayerNorm -> y -> FullyConnected
         x -> gradient of LayerNorm                        x -> gradient of LayerNorm
         y -> gradient in the weight                       x -> LayerNorm -> y -> gradient in the weight

The gradient of LayerNorm reads x, so that x is there until then; of y the backward pass needs no more than to
make the gradient in the weight. Of a chain of cheap operators, as a transposition and a reshape, all are made
again. An array is made where it is first read, of no more bytes than it has itself or of such as others read
still: at no moment is more alive than before. It takes little time next to the products that read it.

What is made again of forward arrays alone could be made any time. It waits for another array that its first
reader reads, of the backward pass: an order of a plan is searched for between places that all must pass, and
there would be none.

The kernels are the same, and so are the numbers. Run it last: what can be part of another node is by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import inf

from ...graph import Entry, Graph, Node
from ..facts import flops_of
from .rewritten import renewed, rewritten

LEAST_BYTES = 512 * 1024
"""Of an array that is made again; with smaller ones the plan would only get longer."""

LEAST_FLOPS = 200
"""Operations of those who read an array for each byte that is moved, and each operation that is done, to make
it again. A core does some 10 to 20 operations of a product while it moves a byte, so that making it again
takes a few percent of their time at most."""

SCATTERED = 8
"""How many times as long a byte takes where rows do not stay rows, as when channels become the last axis."""

_MOST = 3  # operators in a chain
_STAGE = "__mirror_stage__"


def remade(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with cheap results made again; see `Backend.combine`. O(inputs)."""
    found = _chains(graph, kept, num_forward)
    if not found:
        return graph, {}, num_forward
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    again: dict[Entry, Entry] = {}
    moved: dict[Entry, Entry] = {}
    node_of: dict[Node, Node] = {}
    order: list[Node] = []

    def add(old: Node, new: Node, entries: dict[Entry, Entry]) -> None:
        order.append(new)
        for i in range(old.num_outputs):
            was, e = Entry(old, i), Entry(new, i)
            entries[was] = e
            if was in shapes:  # of what nobody reads it may be unknown
                shapes[e], dtypes[e] = shapes[was], dtypes[was]

    backward: set[Node] = set()
    seen = 0  # operators so far
    for node in graph.nodes:
        seen += node.op is not None
        if seen <= num_forward:
            order.append(node)
            continue
        if node.op is not None:
            backward.add(node)
        after = tuple(moved.get(e, e) for e in node.inputs if e.node in backward)[:1]
        for e in node.inputs:
            for old in found.get(e, ()):
                if Entry(old) not in again:
                    inputs = tuple(again.get(i, i) for i in old.inputs)
                    new = replace(old, inputs=inputs, name=f"{old.name}_remade", annotations={}, after=after)
                    add(old, new, again)
        inputs = tuple(again[e] if e in found else moved.get(e, e) for e in node.inputs)
        new = renewed(node, inputs, node_of)
        if new is node:
            order.append(node)
        else:
            node_of[node] = new
            add(node, new, moved)
    return rewritten(graph, order, moved, node_of, shapes, dtypes), moved, num_forward


class _Reads:
    """Where arrays are read and written, by the places of nodes in the order of the graph."""

    def __init__(self, graph: Graph, num_forward: int) -> None:
        self.readers: dict[Entry, list[Node]] = {}
        self.first: dict[Entry, float] = {}  # reader in the backward pass
        self.last: dict[Entry, float] = {}
        self.written: dict[Entry, float] = {}  # the first node that changes an entry
        self.forward: dict[Node, int] = {}
        seen = 0
        for place, node in enumerate(graph.nodes):
            if node.op is None:
                continue
            seen += 1
            if seen <= num_forward:
                self.forward[node] = place
            changed = node.op.mutated(node.attrs)
            for name, e in zip(node.input_names, node.inputs):
                self.readers.setdefault(e, []).append(node)
                if seen > num_forward:
                    self.first.setdefault(e, place)
                    self.last[e] = place
                if name in changed:
                    self.written.setdefault(e, place)


def _chains(graph: Graph, kept: frozenset[Entry], num_forward: int) -> dict[Entry, tuple[Node, ...]]:
    """For every array that is made again the nodes that make it, in their order."""
    reads = _Reads(graph, num_forward)
    shown = kept.union(graph.outputs)
    found: dict[Entry, tuple[Node, ...]] = {}
    for node in reads.forward:
        e = Entry(node)
        if e not in reads.first or e in shown or not _is_cheap(node) or graph.nbytes(e) < LEAST_BYTES:
            continue
        if any(Entry(node, i) in shown or Entry(node, i) in reads.first for i in range(1, node.num_outputs)):
            continue
        chain = _chain(graph, reads, found, node)
        cost = sum(_cost(graph, n, set(chain)) for n in chain)
        if chain and sum(_flops(graph, reads, n) for n in reads.readers[e]) >= LEAST_FLOPS * cost:
            found[e] = chain
    return found


def _chain(
    graph: Graph, reads: _Reads, found: Mapping[Entry, tuple[Node, ...]], node: Node
) -> tuple[Node, ...]:
    """The nodes that make `node`'s output of what is there when it is first read; none if there is no way."""
    e = Entry(node)
    at = reads.first[e]
    chain: dict[Node, None] = {}
    longer = 0  # bytes that would have to wait for that
    left = [node]
    while left:
        part = left.pop()
        if part in chain:
            continue
        chain[part] = None
        if len(chain) > _MOST or not _is_cheap(part):
            return ()
        for i in part.inputs:
            if reads.written.get(i, inf) < at:
                return ()
            if i.node.op is None:
                continue
            last = reads.last.get(i, -inf) if i not in found else -inf
            if last < 0:
                left.append(i.node)
            elif last < at:
                longer += graph.nbytes(i)
    if longer > graph.nbytes(e):
        return ()
    return tuple(sorted(chain, key=reads.forward.__getitem__))


def _is_cheap(node: Node) -> bool:
    """Whether a forward node may simply be run again."""
    op = node.op
    if op is None or node.forward is not None or _STAGE in node.annotations:
        return False
    return op.cheap and op.recomputable and not op.has_stream(node.attrs) and not op.mutated(node.attrs)


def _cost(graph: Graph, node: Node, chain: Set[Node]) -> float:
    """Bytes that a node of a chain moves, and operations that it does."""
    op, ins, out = node.op, node.inputs, Entry(node)
    assert op is not None
    outs = tuple(graph.shapes.get(Entry(node, i), ()) for i in range(node.num_outputs))
    flops = op.flops(node.attrs, tuple(graph.shapes[e] for e in ins), outs)
    nbytes = sum(graph.nbytes(e) for e in (*ins, out))
    if flops or not ins:
        return flops + nbytes
    if op.in_place_options(node.attrs) and ins[0].node in chain:
        return 0  # the same bytes under another shape
    return nbytes if graph.shapes[ins[0]][-1:] == graph.shapes[out][-1:] else SCATTERED * nbytes


def _flops(graph: Graph, reads: _Reads, node: Node) -> float:
    """Operations of a node, as far as what it makes is read."""
    forward = node.forward or node
    assert node.op is not None
    ins = tuple(graph.shapes[e] for e in forward.inputs)
    outs = tuple(graph.shapes.get(Entry(forward, i), ()) for i in range(forward.num_outputs))
    read = [n for i, n in enumerate(node.output_names) if Entry(node, i) in reads.readers]
    return flops_of(node.op, node.attrs, (ins, outs), read)
