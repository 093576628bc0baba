"""Norms in chains of elementwise operators: what follows a norm runs where the norm writes its result.

    x -> BatchNorm -> y -> clip -> z             x -> _norm_statistics -> mean, var
    x, mean, var -> gradient of the norm         x, mean, var -> _normalized -> y -> clip -> z
    y -> gradient of clip                        x, mean, var -> gradient of the norm
                                                 y -> gradient of clip

Behind its statistics a norm is elementwise. As a node of its own, the rest joins the chain of its readers
(`chains.py`), and backward recomputes y from x, which the gradient of the norm reads anyway, where it reads y
(`inline_remat.py`): y is neither written nor kept. The gradient stays that of the whole norm.

All readers of y must be elementwise, of the shape of y, and y must be no output.
"""

from __future__ import annotations

from functools import cache

from ....graph import Entry, Node, Rewriter
from ....ops.elementwise.normalized import Normalized, NormalizedAttrs
from ....ops.scratch import accumulator
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..remat.inline_remat import is_chained
from ..split_norm import split, statistics_request
from ..target import Target
from .norm_act import NORMS


@graph_pass(Stage.STEP, after=("norm_prologue", "stem_gradients"), anchors=NORMS)
def norm_chains(step: Step, target: Target) -> Step:
    """The step whose norms in front of elementwise operators are elementwise themselves. O(inputs).

    A graph without backward nodes stays as it is.
    """
    if not step.has_backward or not target.storable():
        return step
    has_kernel = cache(target.has_kernel)
    found = frozenset(n for n in step.forward if n.op in NORMS and _is_in_chain(step, n))

    def add(made: Rewriter, norm: Node) -> None:
        axis = norm.attrs.axis % len(made.shapes[Entry(norm)])
        split(made, norm, lambda now, statistics: _result(now, statistics, axis))

    return step.substituted({n for n in found if has_kernel(statistics_request(step, n))}, add)


def _is_in_chain(step: Step, node: Node) -> bool:
    """True if only elementwise nodes read the result of `node`, which normalizes by the batch."""
    graph, y = step.graph, Entry(node)
    if node.absent or node.attrs.use_global_stats or y in step.shown:
        return False
    dtype = graph.dtypes[y]
    readers = step.readers.all(y)
    return accumulator(dtype) == dtype and bool(readers) and all(is_chained(graph, y, n) for n in readers)


def _result(norm: Node, statistics: Node, axis: int) -> Node:
    """The node that gives the result of `norm`."""
    mean, var = (output(statistics, name) for name in ("mean", "var"))
    attrs = NormalizedAttrs(axis, norm.attrs.fix_gamma)
    return Node(Normalized, attrs, (*norm.inputs[:3], mean, var), norm.name)
