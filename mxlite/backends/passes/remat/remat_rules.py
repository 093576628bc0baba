"""Rules of rematerialization: which nodes recompute a result of the forward pass from other arrays of a step.

    cheap operator     x -> transposition -> y             x -> transposition -> y
    norm and sum       x, skip -> norm -> y, mean, var     x, skip, mean, var -> _norm_again -> y
    max pooling        x -> pooling -> y, index            x, index -> _chosen_pooling -> y
    both               x -> norm -> pooling -> y, index    x, index -> _chosen_pooling -> _norm_again -> y

A recomputed norm uses the statistics that it had. Max pooling with a known index takes its elements from the
norm's input and normalizes them afterwards: the result of the norm, several times as large, is not
recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....graph import Entry, Graph, Node
from ....graph.attrs import attrs_from
from ....ops.nn.pool_channels_last import ChosenPoolingChannelsLast, PoolingChannelsLast
from ....ops.norm.norm_act import NormAct, NormActAttrs
from ....ops.norm.norm_act_line import NormActLine
from ....ops.norm.norm_remat import NormRemat
from ...base import Request
from ..entries import output, request_of
from .remat_candidates import is_stage, renamed, rerun


def remat_nodes(graph: Graph, e: Entry, has_kernel: Callable[[Request], bool]) -> tuple[Node, ...]:
    """The nodes that recompute `e`: a `RematRule`, once `has_kernel` is given.

    `has_kernel` says whether the backend has a kernel for a `_norm_again` or `_chosen_pooling_channels_last`.
    """
    node = e.node
    if is_stage(node):
        return ()
    if e.index:
        return rerun(graph, e)
    if _is_norm(node):
        found = normalized(node, node.inputs[0])
        return (found,) if has_kernel(request_like(graph, found, Entry(node))) else ()
    if node.op is PoolingChannelsLast and node.attrs.pool_type == "max":
        return _pooled(graph, node, has_kernel)
    return rerun(graph, e)


def _is_norm(node: Node) -> bool:
    return node.op in (NormAct, NormActLine) and not node.absent


def _pooled(graph: Graph, node: Node, has_kernel: Callable[[Request], bool]) -> tuple[Node, ...]:
    norm = node.inputs[0].node
    rank = len(graph.shapes[Entry(node)])
    # The norm maps all numbers of a channel alike, so it may as well come after the pooling.
    is_alone = _is_norm(norm) and len(norm.inputs) == 5 and norm.attrs.axis % rank == rank - 1
    source = norm.inputs[0] if is_alone else node.inputs[0]
    op = ChosenPoolingChannelsLast
    chosen = replace(renamed(node), op=op, inputs=(source, output(node, "index")))
    found = (chosen, normalized(norm, Entry(chosen))) if is_alone else (chosen,)
    return found if all(has_kernel(request_like(graph, n, Entry(node))) for n in found) else ()


def normalized(norm: Node, data: Entry, by: Node | None = None) -> Node:
    """The node that applies `norm` to `data`, with the statistics that it, or the node `by`, has computed."""
    attrs = attrs_from(NormActAttrs, norm.attrs, relu=getattr(norm.attrs, "relu", False))
    mean, var = (output(by or norm, name) for name in ("mean", "var"))
    inputs = (data, *norm.inputs[1:3], mean, var, *norm.inputs[5:])
    return replace(renamed(norm), op=NormRemat, attrs=attrs, inputs=inputs)


def request_like(graph: Graph, node: Node, like: Entry) -> Request:
    """The request for a kernel for `node`, whose output has the shape of `like`."""
    known = [like if e not in graph.shapes else e for e in node.inputs]
    assert node.op is not None
    return request_of(graph, node.op, node.attrs, known, (graph.shapes[like],))
