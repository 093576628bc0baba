"""Where a step holds the most bytes it does not hold what can be made again in one pass over memory.

    x1 -> norm, sum -> y1 -> convolution              x1 -> norm, sum -> y1 -> convolution
    x2 -> norm, y1 -> sum -> y2 -> convolution        x2 -> norm, y1 -> sum -> y2 -> convolution
    x1, x2 -> gradients of the norms                  x1, x2 -> gradients of the norms
    y2 -> gradient in the weight                      x1 -> y1, x2 -> y2 -> gradient in the weight

`cheap_remat` looks at who reads an array: next to those it must be cheap. Here it must be cheap next to the
whole step, and without it the step must hold less at its fullest moment. What is first read about then stays
as it is, as that would save nothing.

A plan within a budget decides by itself what runs again, and finds less to hold where it decides about all:
what is made again here needs several arrays at once. So this is for steps without a budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial

import numpy as np

from ....graph import Entry, Graph, Node
from ...rewrite import graph_pass, Stage, Step
from ..target import Prices, Target
from .remat_candidates import Reads, Way, ways_of, with_ways, work_of
from .remat_rules import again

STEP_FLOPS = 250
"""Operations of the step for each byte that is moved, and each operation that is done, to make arrays again.
A core does some 10 to 20 while it moves a byte, so that it takes a few percent of the time at most."""

LEAST_BYTES = 128 * 1024
"""Of an array that is made again: the fullest moment has none of it then."""


def _of_a_core(step_flops: float) -> Prices:
    return Prices(lambda flops, nbytes, dtype: flops / step_flops, lambda cost, nodes: cost)


@graph_pass(Stage.UNBOUNDED)
def remat_at_peak(step: Step, target: Target) -> Step:
    """A step that holds less. O(inputs + arrays found * nodes)."""
    reads = Reads(step)
    ways = ways_of(step, reads, partial(again, has_kernel=target.has_kernel), LEAST_BYTES)
    prices = target.prices() or _of_a_core(STEP_FLOPS)
    chosen = _chosen(step.graph, reads, ways, step.shown, prices) if ways else []
    return with_ways(step, reads, ways, chosen) if chosen else step


def _chosen(
    graph: Graph, reads: Reads, ways: Mapping[Entry, Way], shown: Set[Entry], prices: Prices
) -> Sequence[Entry]:
    """What is made again: of all that saves something what saves most for its cost, as much as is cheap."""
    live = _live(graph, reads, shown)
    price = {e: prices.again(way.cost, len(way.nodes)) for e, way in ways.items()}
    found = sorted(ways, key=lambda e: (price[e] / graph.nbytes(e), reads.place[e.node]))
    found = _needed(graph, reads, ways, live, found)
    work = 0.0
    for node in (*reads.forward, *reads.backward):
        moved = sum(graph.nbytes(e) for e in (*node.inputs, *reads.made(node)))
        dtype = graph.dtypes[node.inputs[0]] if node.inputs else None
        work += prices.step(work_of(graph, reads, node), moved, dtype)
    count = int((np.cumsum([price[e] for e in found]) <= work).sum())
    return found if count == len(found) else _needed(graph, reads, ways, live, found[:count])


def _needed(
    graph: Graph, reads: Reads, ways: Mapping[Entry, Way], live: np.ndarray, found: Sequence[Entry]
) -> list[Entry]:
    """Those of `found` without which the step would hold more at its fullest; the last are left out first."""
    live, first, several = live.copy(), dict(reads.first), frozenset(found)
    spans: dict[Entry, slice] = {}
    for e in reversed([e for e in ways if e in several]):
        for used in ways[e].uses:
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
    """Bytes of what nodes make that are there at each place; updates come as soon as their gradient does."""
    end: dict[Entry, int] = {}
    for node, place in reads.place.items():
        if node.op is not None:
            end |= {Entry(node, i): place for i in range(node.num_outputs)}
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
    """Whether both have as many bytes, as far as is known."""
    return a in graph.shapes and b in graph.shapes and graph.nbytes(a) == graph.nbytes(b)
