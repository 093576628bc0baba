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
from dataclasses import replace
from functools import cache
from math import prod

from ....graph import Entry, Node, Rewriter
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import NormAct
from ....ops.norm.norm_act_line import NormActLine
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..fusion.norm_act import statistics_of
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
    search = _SplitNormSearch(step, cache(target.has_kernel))
    found = frozenset(filter(search.can_split, step.forward))
    return step.substituted(found, _split)


class _SplitNormSearch:
    """The search for norms that can be split."""

    def __init__(self, step: Step, has_kernel: Callable[[Request], bool]) -> None:
        self.graph, self.has_kernel = step.graph, has_kernel
        self.visible, self.read = step.shown, step.readers.wants

    def can_split(self, node: Node) -> bool:
        """True if `node` is a norm whose result may be recomputed from small statistics."""
        if node.op not in _NORMS or node.absent or node.attrs.use_global_stats:
            return False
        y = Entry(node)
        if y in self.visible or not self.read(y) or not self._is_long(node):
            return False
        requests = (
            self._statistics_request(node),
            request_like(self.graph, normalized(node, node.inputs[0]), y),
        )
        return all(map(self.has_kernel, requests))

    def _is_long(self, node: Node) -> bool:
        shape = self.graph.shapes[Entry(node)]
        return prod(shape) >= LEAST_COUNT * shape[node.attrs.axis] > 0

    def _statistics_request(self, node: Node) -> Request:
        """The request for a kernel that computes the outputs of `node` that are read, besides the result."""
        graph, new = self.graph, statistics_of(node)
        read = {n for n in ("factor", "shift") if n in node.output_names and self.read(output(node, n))}
        found = request_like(graph, new, node.inputs[0])
        channel = graph.shapes[output(node, "mean")]
        used = frozenset((*new.input_names, "mean", "var", *read))
        return replace(found, outputs=(channel,) * len(new.output_names), used=used)


def _split(made: Rewriter, norm: Node) -> None:
    """Add the statistics of `norm`, and its result."""
    now = replace(norm, inputs=made.inputs(norm))
    first = statistics_of(now)
    again = normalized(now, now.inputs[0], by=first)
    new = made.node_of[norm] = replace(again, name=norm.name, annotations=norm.annotations)
    made.order += [first, new]
    for name in first.output_names:  # the norm may lack two of them
        made.put(output(norm, "mean"), output(first, name))
    for i, name in enumerate(norm.output_names):
        made.put(Entry(norm, i), output(first if name in first.output_names else new, name))
