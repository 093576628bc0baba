"""Epilogue fusion of batch normalization with the sum and the rectifier that follow it.

    BatchNorm -> relu                             becomes  _norm_act
    BatchNorm -> + addend -> relu                 becomes  _norm_act(..., addend)

The rectifier may be leaky. The arrays between them are not stored, forward or backward; they must have no
other reader, and be no outputs. If both addends are norms, the left one is fused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.attrs import attrs_from
from ....ops.elementwise.activation import Activation, relu
from ....ops.elementwise.broadcast import broadcast_add
from ....ops.elementwise.elemwise import elemwise_add
from ....ops.elementwise.leaky import LeakyReLU
from ....ops.norm.norm import BatchNorm, BatchNorm_v1, ContribSyncBatchNorm
from ....ops.norm.norm_act import NormAct, NormActAttrs
from ...base import Request
from ...rewrite import graph_pass, Readers, Stage, Step
from ..entries import agree, request_of
from ..target import Target

NORMS = (BatchNorm, BatchNorm_v1, ContribSyncBatchNorm)
_SUMS = (elemwise_add, broadcast_add)


@graph_pass(Stage.FORWARD, after=("channels_last", "epilogue"), anchors=NORMS)
def norm_act(step: Step, target: Target) -> Step:
    """The step with a `_norm_act` for each group that it can replace. O(nodes).

    The new node has the name and the annotations of the rectifier. Nodes that the user marks differently, one
    to be recomputed and another not, are not fused.
    """
    graph, asked = step.graph, cache(target.has_kernels)  # once for equal norms
    fits = partial(_has_kernels, step, asked)
    found: dict[Node, tuple[Node, Node | None, Entry | None]] = {}
    taken: set[Node] = set()
    for node in graph.nodes:
        match = _match(graph, step.readers, node, fits)
        if match is not None:
            found[node] = match
            taken.update(n for n in match[:2] if n is not None)

    def add(r: Rewriter, node: Node) -> None:
        norm, _, addend = found[node]
        ins = [r.of(e) for e in (*norm.inputs, *(() if addend is None else (addend,)))]
        attrs = _attrs(norm, addend, slope_of(node))
        r.put(Entry(node), Entry(r.add(NormAct, attrs, ins, node.name, node.annotations)))

    return step.substituted(found, add, gone=taken)


def is_norm(node: Node) -> bool:
    """True for a batch normalization."""
    return node.op in NORMS


def is_sum(node: Node) -> bool:
    """True for a sum of two arrays."""
    return node.op in _SUMS


def is_relu(node: Node) -> bool:
    """True for a rectifier that is not leaky."""
    return node.op is relu or (node.op is Activation and node.attrs.act_type == "relu")


def slope_of(node: Node) -> float | None:
    """The slope of a rectifier for negative numbers; None for any other node."""
    if is_relu(node):
        return 0.0
    is_leaky = node.op is LeakyReLU and node.attrs.act_type == "leaky" and 0 <= node.attrs.slope < 1
    return node.attrs.slope if is_leaky else None


def _match(
    graph: Graph, readers: Readers, node: Node, fits: Callable[[float, Node, Entry | None], bool]
) -> tuple[Node, Node | None, Entry | None] | None:
    """The norm, the sum and the other addend that end in the rectifier `node`."""
    slope = slope_of(node)
    if slope is None:
        return None
    (source,) = node.inputs
    if _is_free(readers, source, node) and fits(slope, source.node, None):
        return source.node, None, None
    both = source.node
    if not is_sum(both) or readers.only(source) is not node or not agree(both, node):
        return None
    for mine, other in (both.inputs, both.inputs[::-1]):
        # broadcast_add may broadcast either addend, which `_norm_act` does not.
        same = graph.shapes[mine] == graph.shapes[other] and graph.dtypes[mine] == graph.dtypes[other]
        if same and _is_free(readers, mine, node) and fits(slope, mine.node, other):
            return mine.node, both, other
    return None


def _is_free(readers: Readers, entry: Entry, end: Node) -> bool:
    """True if `entry` is the result of a norm and has one reader, and the statistics have none."""
    norm = entry.node
    return (
        is_norm(norm)
        and entry.index == 0
        and readers.only(entry) is not None
        and not any(readers.wants(Entry(norm, i)) for i in (1, 2))
        and not norm.absent
        and agree(norm, end)
    )


def _has_kernels(
    step: Step, has_kernels: Callable[[Request], bool], slope: float, norm: Node, addend: Entry | None
) -> bool:
    """True if the backend has kernels for the fused norm, and in training for its gradient."""
    entries = [*norm.inputs, *(() if addend is None else (addend,))]
    made = tuple(step.graph.shapes[Entry(norm, i)] for i in range(norm.num_outputs))
    attrs = _attrs(norm, addend, slope)
    return has_kernels(request_of(step.graph, NormAct, attrs, entries, made, train=step.train))


def _attrs(norm: Node, addend: Entry | None, slope: float | None) -> NormActAttrs:
    plus = "" if addend is None else "array"
    made: NormActAttrs = attrs_from(NormActAttrs, norm.attrs, relu=True, plus=plus, slope=slope or 0.0)
    return made
