"""Norms in two, where a plan may run them again: what runs again does not look for the statistics twice.

    x, addend -> norm -> y, mean, var         x -> _norm_statistics -> mean, var
                                              x, mean, var, addend -> _norm_again -> y

A norm that runs again reads its data twice, for statistics that the step still has: its gradient reads them.
They take next to nothing to keep, so that the node that finds them runs once. What runs again is a node by
itself, with a time of its own, and reads its data once. Planner, judge, files and calibration need to know
nothing of it; the first time the two read and write what the one did, in the same passes over memory.

Next to its data the statistics of a norm have to be small: those of all norms are kept at once.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from functools import cache
from math import prod

from ....graph import Entry, Node, Rewriter
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import NormAct
from ....ops.norm.norm_act_line import NormActLine
from ....ops.norm.norm_act_sum import NormActSum
from ....ops.norm.norm_statistics import NormStatistics
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target
from .remat_rules import normalized, request_like

LEAST_COUNT = 512
"""Numbers of a channel: both statistics, and the two numbers of a line, are 1 / 128 of the data at most."""

_NORMS = (BatchNorm, NormAct, NormActLine, NormActSum)


@graph_pass(Stage.BOUNDED, anchors=_NORMS)
def split_norm_statistics(step: Step, target: Target) -> Step:
    """Norms of the batch in two. O(inputs).

    A graph without backward nodes stays as it is: there is nothing to run again for.
    """
    if not step.has_backward:
        return step
    search = _DividedSearch(step, cache(target.has_kernel))
    found = frozenset(filter(search.is_divided, step.forward))
    return _DividedRewrite(step, found).result() if found else step


class _DividedSearch:
    """Which norms are divided."""

    def __init__(self, step: Step, has_kernel: Callable[[Request], bool]) -> None:
        self.graph, self.has_kernel = step.graph, has_kernel
        self.visible, self.read = step.shown, step.readers.wants

    def is_divided(self, node: Node) -> bool:
        """Whether `node` is a norm whose result may run again, with little to keep for that."""
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
        """The question for a kernel that finds what is read of `node` besides its result."""
        graph, new = self.graph, _statistics(node)
        read = {n for n in ("factor", "shift") if n in node.output_names and self.read(output(node, n))}
        found = request_like(graph, new, node.inputs[0])
        channel = graph.shapes[output(node, "mean")]
        used = frozenset((*new.input_names, "mean", "var", *read))
        return replace(found, outputs=(channel,) * len(new.output_names), used=used)


class _DividedRewrite:
    """The step with the norms `found` in two."""

    def __init__(self, step: Step, found: Set[Node]) -> None:
        self.step, self.found = step, found
        self.made = Rewriter(step.graph)

    def result(self) -> Step:
        for node in self.made.walk(self.step.num_forward):
            if node in self.found:
                self._divide(node)
            else:
                self.made.keep(node)
        return self.step.rewritten(self.made)

    def _divide(self, norm: Node) -> None:
        now = replace(norm, inputs=self.made.inputs(norm))
        first = _statistics(now)
        again = normalized(now, now.inputs[0], by=first)
        new = self.made.node_of[norm] = replace(again, name=norm.name, annotations=norm.annotations)
        self.made.order += [first, new]
        for name in first.output_names:  # two of them the norm need not have
            self.made.put(output(norm, "mean"), output(first, name))
        for i, name in enumerate(norm.output_names):
            self.made.put(Entry(norm, i), output(first if name in first.output_names else new, name))


def _statistics(norm: Node) -> Node:
    """The node that finds the statistics of `norm`."""
    a = norm.attrs
    attrs = BatchNorm.Attrs(eps=a.eps, momentum=a.momentum, fix_gamma=a.fix_gamma, axis=a.axis)
    return Node(NormStatistics, attrs, norm.inputs[:5], f"{norm.name}_statistics")
