"""Rematerialization at the peak: cheap results are not held at the step with the most live bytes.

    x1 -> norm, sum -> y1 -> convolution              x1 -> norm, sum -> y1 -> convolution
    x2 -> norm, y1 -> sum -> y2 -> convolution        x2 -> norm, y1 -> sum -> y2 -> convolution
    x1, x2 -> gradients of the norms                  x1, x2 -> gradients of the norms
    y2 -> gradient in the weight                      x1 -> y1, x2 -> y2 -> gradient in the weight

For `cheap_remat` a recomputation must be cheap next to the readers of the array. Here it must be cheap next
to the whole step, and it must lower the peak. An array that is first read near the peak stays as it is, since
its recomputation would save nothing.

A planner with a budget chooses recomputations by itself, and needs fewer bytes if it chooses all of them:
these ones need several arrays at once. So this pass is for steps without a budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial

import numpy as np

from ....graph import Entry, Graph, Node
from ...crews import FLOPS_PER_BYTE
from ...rewrite import graph_pass, Stage, Step
from ..target import Prices, Target
from .remat_candidates import find_candidates, Reads, RematCandidate, with_remat, work_of
from .remat_rules import remat_nodes

SHARE = 1 / 16
"""Most of the step's time that recomputation may take."""

LEAST_BYTES = 128 * 1024
"""Least bytes of a recomputed array, and so the least that one of them can take from the peak."""


def _of_a_core() -> Prices:
    return Prices(
        lambda flops, nbytes, dtype: SHARE * max(flops / FLOPS_PER_BYTE, nbytes), lambda cost, nodes: cost
    )


@graph_pass(Stage.UNBOUNDED)
def remat_at_peak(step: Step, target: Target) -> Step:
    """The step with a lower peak. O(inputs + candidates * nodes)."""
    reads = Reads(step)
    candidates = find_candidates(step, reads, partial(remat_nodes, has_kernel=target.has_kernel), LEAST_BYTES)
    prices = target.prices() or _of_a_core()
    chosen = _chosen(step.graph, reads, candidates, step.shown, prices) if candidates else []
    return with_remat(step, reads, candidates, chosen) if chosen else step


def _chosen(
    graph: Graph, reads: Reads, candidates: Mapping[Entry, RematCandidate], shown: Set[Entry], prices: Prices
) -> Sequence[Entry]:
    """The arrays to recompute: those that lower the peak, the most bytes for their cost first, as long as the
    sum of the costs stays cheap.
    """
    live = _live(graph, reads, shown)
    price = {e: prices.remat(candidate.cost, len(candidate.nodes)) for e, candidate in candidates.items()}
    found = sorted(candidates, key=lambda e: (price[e] / graph.nbytes(e), reads.place[e.node]))
    found = _needed(graph, reads, candidates, live, found)
    work = 0.0
    for node in (*reads.forward, *reads.backward):
        moved = sum(graph.nbytes(e) for e in (*node.inputs, *reads.made(node)))
        dtype = graph.dtypes[node.inputs[0]] if node.inputs else None
        work += prices.step(work_of(graph, reads, node), moved, dtype)
    count = int((np.cumsum([price[e] for e in found]) <= work).sum())
    return found if count == len(found) else _needed(graph, reads, candidates, live, found[:count])


def _needed(
    graph: Graph,
    reads: Reads,
    candidates: Mapping[Entry, RematCandidate],
    live: np.ndarray,
    found: Sequence[Entry],
) -> list[Entry]:
    """The arrays of `found` that the peak depends on; the last of `found` are dropped first."""
    live, first, several = live.copy(), dict(reads.first), frozenset(found)
    spans: dict[Entry, slice] = {}
    for e in reversed([e for e in candidates if e in several]):
        for used in candidates[e].uses:
            first[used] = min(first[used], first[e])
        spans[e] = slice(reads.early.get(e, reads.place[e.node]) + 1, first[e])
        live[spans[e]] -= graph.nbytes(e)
    most = live.max()
    needed = []
    for e in reversed(found):
        here = live[spans[e]]
        if here.max(initial=0) + graph.nbytes(e) > most:
            needed.append(e)
        else:
            here += graph.nbytes(e)
    return needed[::-1]


def _live(graph: Graph, reads: Reads, shown: Set[Entry]) -> np.ndarray:
    """Live bytes of computed arrays at each place; an update runs as soon as its gradient is there."""
    end: dict[Entry, int] = {}
    for node, place in reads.place.items():
        if node.op is not None:
            end |= dict.fromkeys(node.outputs, place)
            end |= {e: place for e in node.inputs if node.num_outputs or e.node not in reads.backward}
    for node, place in reads.place.items():
        options = {} if node.op is None else node.op.in_place_options(node.attrs)
        for i, name in enumerate(node.output_names if options else ()):
            donors = (d for donor in options.get(name, ()) for d in _named(node, donor))
            for d in donors:
                if end[d] == place and d.node.op is not None and _is_alike(graph, d, Entry(node, i)):
                    end[d] -= 1
                    break
    steps = np.zeros(len(reads.place) + 1, np.int64)
    for e, last in end.items():
        if e.node.op is not None and e in reads.readers and e not in shown:
            steps[reads.place[e.node]] += graph.nbytes(e)
            steps[last + 1] -= graph.nbytes(e)
    return steps.cumsum()


def _named(node: Node, donor: str) -> Sequence[Entry]:
    """The inputs of `node` that its operator calls `donor`."""
    assert node.op is not None
    if donor == node.op.variadic:
        return node.inputs
    return [e for name, e in zip(node.input_names, node.inputs) if name == donor]


def _is_alike(graph: Graph, a: Entry, b: Entry) -> bool:
    """True if both are known to have the same number of bytes."""
    return a in graph.shapes and b in graph.shapes and graph.nbytes(a) == graph.nbytes(b)
