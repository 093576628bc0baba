"""Norms as two nodes, statistics and result, so that a recomputation does not repeat the statistics.

    x, addend -> norm -> y, mean, var         x -> _norm_statistics -> mean, var
                                              x, mean, var, addend -> _norm_again -> y

A recomputed norm would read its data twice, for statistics that the step still has, since the norm's gradient
reads them. They take next to nothing to keep, so the node that computes them runs once. The node that a plan
recomputes has a time of its own and reads its data once. Planner, judge, files and calibration need to know
nothing of this; without recomputation the two nodes read and write what the one did, in the same passes over
memory.

The statistics of a norm must be small next to its data, since those of all norms are kept at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod

from ....graph import Entry, Node, Rewriter
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import NormAct
from ....ops.norm.norm_act_line import NormActLine
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..split_norm import split, statistics_request
from ..target import Target
from .remat_rules import normalized, request_like

LEAST_COUNT = 512
"""Least numbers of a channel: then both statistics, factor and shift are 1 / 128 of the data at most."""

_NORMS = (BatchNorm, NormAct, NormActLine)


@graph_pass(Stage.BOUNDED, anchors=_NORMS)
def split_norm_statistics(step: Step, target: Target) -> Step:
    """The step with batch norms as two nodes each. O(inputs).

    A graph without backward nodes stays as it is: it recomputes nothing.
    """
    if not step.has_backward:
        return step
    has_kernel = cache(target.has_kernel)
    return step.substituted({n for n in step.forward if _can_split(step, n, has_kernel)}, _split)


def _can_split(step: Step, node: Node, has_kernel: Callable[[Request], bool]) -> bool:
    """True if `node` is a norm whose result may be recomputed from small statistics."""
    if node.op not in _NORMS or node.absent or node.attrs.use_global_stats:
        return False
    y, shape = Entry(node), step.graph.shapes[Entry(node)]
    if y in step.shown or y not in step.read or not prod(shape) >= LEAST_COUNT * shape[node.attrs.axis] > 0:
        return False
    again = request_like(step.graph, normalized(node, node.inputs[0]), y)
    return has_kernel(statistics_request(step, node)) and has_kernel(again)


def _split(made: Rewriter, norm: Node) -> None:
    split(made, norm, lambda now, first: normalized(now, now.inputs[0], by=first))
