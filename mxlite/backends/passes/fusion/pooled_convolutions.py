"""A convolution and the max pooling that follows it become one node, which runs on tiles of samples.

    Convolution -> max pooling     becomes     _pooled_convolution

So the result of the convolution, and its gradient, never exist as a whole; see `pooled_convolution.py`. The
array between the two must have no other reader, and be no output. In training, `hoist_pooling.py` has moved
the activation behind the pooling if it may; at inference the rectifier is part of the convolution, and this
pass moves it behind both: no kernel has windows of padding alone.
"""

from __future__ import annotations

from collections.abc import Set

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.attrs import attrs_from
from ....ops.elementwise.activation import Activation
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue
from ....ops.nn.pool_channels_last import PoolingChannelsLast
from ....ops.nn.pooled_convolution import PooledAttrs, PooledConvolution
from ....ops.norm.norm_act import NormAct
from ...elementwise.epilogue import RECTIFIER
from ...rewrite import graph_pass, Readers, Stage, Step
from ..entries import request_of
from ..target import Target
from .norm_act import is_norm

LEAST_BYTES = 384 * 1024
"""Least bytes of a tile's intermediate array: with less, starting calls begins to count."""

WEIGHT_SHARE = 3
"""A tile has at least the weight's bytes divided by this: for each tile the weight is read and transformed,
and the gradient in it read and written."""


@graph_pass(
    Stage.FORWARD,
    after=("channels_last", "epilogue", "norm_act", "hoist_pooling"),
    anchors=(PoolingChannelsLast,),
)
def pooled_convolutions(step: Step, target: Target) -> Step:
    """The step with a `_pooled_convolution` wherever that saves bytes. O(nodes).

    The new node has the name of the convolution. Nodes with annotations stay as they are.
    """
    graph = step.graph
    pools = [n for n in graph.nodes if n.op is PoolingChannelsLast and n.attrs.pool_type == "max"]
    if not pools:
        return step
    differentiated = {n.forward for n in graph.nodes if n.forward is not None}
    found: dict[Node, PooledAttrs] = {}
    for pool in pools:
        if _are_free(pool, step.readers, differentiated):
            attrs = _attrs(graph, pool)
            if attrs is not None and _has_kernels(step, pool, attrs, target):
                found[pool] = attrs

    def add(r: Rewriter, node: Node) -> None:
        conv = node.inputs[0].node
        made = r.add(PooledConvolution, found[node], r.inputs(conv), conv.name)
        if _rectifies(conv):
            made = r.add(Activation, Activation.Attrs(act_type="relu"), [Entry(made)], node.name)
        r.put(Entry(node), Entry(made))

    return step.substituted(found, add, gone={pool.inputs[0].node for pool in found}, ordered=False)


def _are_free(pool: Node, readers: Readers, differentiated: Set[Node | None]) -> bool:
    """True if the pooling is the only reader of a convolution that may be fused with it."""
    conv = pool.inputs[0].node
    is_alone = conv.op is ConvolutionChannelsLast or (_rectifies(conv) and not _has_more(conv))
    if not is_alone or readers.only(pool.inputs[0]) is not pool or readers.wants(Entry(pool, 1)):
        return False
    if conv.annotations or pool.annotations or not differentiated.isdisjoint((conv, pool)):
        return False
    data = conv.inputs[0].node
    return not (is_norm(data) or data.op is NormAct)  # data that need not exist; see norm_prologue.py


def _rectifies(conv: Node) -> bool:
    return conv.op is ConvolutionEpilogue and conv.attrs.epilogue == RECTIFIER


def _has_more(conv: Node) -> bool:
    return conv.attrs.scale or conv.attrs.add


def _attrs(graph: Graph, pool: Node) -> PooledAttrs | None:
    """The attributes of the fused node, its tiles included; None if it saves nothing."""
    conv, a = pool.inputs[0].node, pool.attrs
    made, pooled = graph.shapes[pool.inputs[0]], graph.shapes[Entry(pool)]
    count = made[0]
    whole = graph.nbytes(pool.inputs[0])
    if not count or not whole or 2 * (graph.nbytes(Entry(pool)) + graph.nbytes(Entry(pool, 1))) > whole:
        return None
    least = max(LEAST_BYTES, graph.nbytes(conv.inputs[1]) // WEIGHT_SHARE)
    samples = -(-least * count // whole)
    if 2 * samples > count:
        return None
    rank = len(pooled) - 2
    return attrs_from(
        PooledAttrs,
        conv.attrs,
        pool_kernel=made[1:-1] if a.global_pool else a.kernel,
        pool_stride=(1,) * rank if a.global_pool else a.stride,
        pool_pad=(0,) * rank if a.global_pool else a.pad,
        pooling_convention="valid" if a.global_pool else a.pooling_convention,
        samples=-(-count // (count // samples)),  # tiles are about equal
    )


def _has_kernels(step: Step, pool: Node, attrs: PooledAttrs, target: Target) -> bool:
    conv = pool.inputs[0].node
    outs = tuple(step.graph.shapes[Entry(pool, i)] for i in range(2))
    r = request_of(step.graph, PooledConvolution, attrs, conv.inputs, outs, train=step.train)
    return target.has_kernels(r)
