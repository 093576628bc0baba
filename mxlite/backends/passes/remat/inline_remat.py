"""Rematerialization inside elementwise gradients: they recompute what they read, in registers.

    gate -> silu -> s;  s * up -> product            gate -> silu -> s;  s * up -> product
    d, s -> gradient in up                           d, gate -> silu, gradient in up
    d, gate -> gradient in gate                      d, gate -> gradient in gate

Backward reads s for an elementwise gradient alone, and has gate. The recomputation joins that gradient's
chain (`chains.py`), which then reads no more than before: s is not kept, and no pass over memory is added.
"""

from __future__ import annotations

from collections.abc import Set

from ....graph import Entry, Graph, Node
from ...elementwise.formula import is_elementwise
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .remat_candidates import find_candidates, is_small, Reads, RematCandidate, rerun, with_remat

LEAST_BYTES = 4 * 1024
"""Least bytes of an array that is worth a longer chain."""


@graph_pass(Stage.STEP, after=("norm_chains", "split_gradients", "norm_prologue", "epilogue"))
def inline_remat(step: Step, target: Target) -> Step:
    """The step whose elementwise gradients recompute what they alone read. O(inputs)."""
    if not step.has_backward or not target.storable():
        return step
    reads = Reads(step)
    candidates = find_candidates(step, reads, _elementwise, LEAST_BYTES)
    chosen: set[Entry] = set()
    for e, candidate in candidates.items():
        if _is_free(step, reads, e, candidate, chosen):
            chosen.add(e)
    return with_remat(step, reads, candidates, [e for e in candidates if e in chosen]) if chosen else step


def _elementwise(graph: Graph, e: Entry) -> tuple[Node, ...]:
    """The rule: elementwise nodes run again."""
    return rerun(graph, e) if is_elementwise(e.node.op) else ()


def _is_free(step: Step, reads: Reads, e: Entry, candidate: RematCandidate, chosen: Set[Entry]) -> bool:
    """True if elementwise gradients alone read `e` in the backward pass, and the recomputation reads live
    arrays, at most one of which they do not read.
    """
    graph = step.graph
    readers = [n for n in reads.readers[e] if n in reads.backward]
    if not all(is_chained(graph, e, n) for n in readers):
        return False
    had = {i for n in readers for i in n.inputs}
    new = 0
    for i in dict.fromkeys(i for n in candidate.nodes for i in n.inputs if i not in candidate.like):
        if i in chosen or is_small(graph, i, beside=e):
            continue
        if i.node.op is not None and i not in step.shown and reads.last.get(i, -1) < reads.last[e]:
            return False
        new += i not in had
    return new <= 1


def is_chained(graph: Graph, e: Entry, reader: Node) -> bool:
    """True if `reader` is elementwise and what it makes has the shape of `e`."""
    return is_elementwise(reader.op) and graph.shapes.get(Entry(reader.forward or reader)) == graph.shapes[e]
