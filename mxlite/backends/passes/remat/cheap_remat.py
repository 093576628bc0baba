"""Rematerialization of cheap results: the backward pass recomputes them from arrays that are kept anyway.

    x -> LayerNorm -> y -> FullyConnected             x -> LayerNorm -> y -> FullyConnected
         x -> gradient of LayerNorm                        x -> gradient of LayerNorm
         y -> gradient in the weight                       x -> LayerNorm -> y -> gradient in the weight

The gradient of LayerNorm reads x, so x is live until then; in the backward pass only the gradient in the
weight reads y. Recomputing y takes little time next to the products that read it.

The kernels are the same, and so are the numbers. This pass runs last, after all fusion.
"""

from __future__ import annotations

from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .remat_candidates import find_candidates, Reads, rerun, with_remat, work_of

LEAST_BYTES = 256 * 1024
"""Least bytes of a recomputed array: smaller ones would only make the plan longer."""

LEAST_FLOPS = 200
"""Least operations of the readers of an array, for each byte moved and each operation done to recompute it.
A core does some 10 to 20 operations of a product while it moves a byte, so that a recomputation takes a few
percent of the readers' time at most."""


@graph_pass(Stage.STEP, after=("chains",))
def cheap_remat(step: Step, target: Target) -> Step:
    """The step in which cheap results are recomputed. O(inputs)."""
    reads = Reads(step)
    candidates = find_candidates(step, reads, rerun, LEAST_BYTES)
    work = {e: sum(work_of(step.graph, reads, n) for n in reads.readers[e]) for e in candidates}
    chosen = [e for e, candidate in candidates.items() if work[e] >= LEAST_FLOPS * candidate.cost]
    return with_remat(step, reads, candidates, chosen) if chosen else step
