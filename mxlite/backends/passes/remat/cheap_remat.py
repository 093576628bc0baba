"""What a cheap operator makes of arrays that are kept anyway is not kept: the backward pass makes it again.

    x -> LayerNorm -> y -> FullyConnected             x -> LayerNorm -> y -> FullyConnected
         x -> gradient of LayerNorm                        x -> gradient of LayerNorm
         y -> gradient in the weight                       x -> LayerNorm -> y -> gradient in the weight

The gradient of LayerNorm reads x, so that x is there until then; of y the backward pass needs no more than to
make the gradient in the weight. It takes little time next to the products that read it.

The kernels are the same, and so are the numbers. It comes last: what can be part of another node is by then.
"""

from __future__ import annotations

from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .remat_candidates import Reads, rerun, ways_of, with_ways, work_of

LEAST_BYTES = 256 * 1024
"""Of an array that is made again; with smaller ones the plan would only get longer."""

LEAST_FLOPS = 200
"""Operations of those who read an array for each byte that is moved, and each operation that is done, to make
it again. A core does some 10 to 20 operations of a product while it moves a byte, so that making it again
takes a few percent of their time at most."""


@graph_pass(Stage.STEP, after=("chains",))
def cheap_remat(step: Step, target: Target) -> Step:
    """Cheap results made again. O(inputs)."""
    reads = Reads(step)
    ways = ways_of(step, reads, rerun, LEAST_BYTES)
    work = {e: sum(work_of(step.graph, reads, n) for n in reads.readers[e]) for e in ways}
    chosen = [e for e, way in ways.items() if work[e] >= LEAST_FLOPS * way.cost]
    return with_ways(step, reads, ways, chosen) if chosen else step
