"""A convolution and the max pooling behind it become one node, which works on some samples at a time.

    Convolution -> max pooling     becomes     _pooled_convolution

So what the convolution makes, and its gradient, are never there as a whole; see `pooled_convolution.py`.
What lies between must have no other reader, and be no output. In training the activation has gone behind the
pooling by then where it may, see `pool_first.py`; at inference the convolution rectifies by itself, and the
rectifier goes behind both here: no window of those that there are kernels for is of padding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import fields, replace

from ...graph import Entry, Graph, Node, Rewriter
from ...ops.elementwise.activation import Activation
from ...ops.nn.conv_channels_last import _convolution_channels_last, _convolution_epilogue, ChannelsLastAttrs
from ...ops.nn.pool_channels_last import _pooling_channels_last
from ...ops.nn.pooled_convolution import _pooled_convolution, PooledAttrs
from ...ops.norm.norm_act import _norm_act
from ..base import Request
from .norm_act import is_norm

LEAST_BYTES = 384 * 1024
"""Of what is made of a band: with less, starting calls begins to count."""

WEIGHT_SHARE = 3
"""A band has at least one part in so many of the weight's bytes: for each of them the weight is read and
transformed, and the gradient in it read and written."""


def pooled_convolutions(graph: Graph, train: bool, has_kernel: Callable[[Request], bool]) -> Graph:
    """`graph` with `_pooled_convolution` where that saves bytes. O(nodes).

    The new node has the name of the convolution. Nodes that are annotated stay as they are. `has_kernel` says
    for a `_pooled_convolution`, and for its gradient, whether the backend has a kernel.
    """
    pools = [n for n in graph.nodes if n.op is _pooling_channels_last and n.attrs.pool_type == "max"]
    if not pools:
        return graph
    uses = graph.uses()
    kept = set(graph.outputs)
    differentiated = {n.forward for n in graph.nodes if n.forward is not None}
    found: dict[Node, PooledAttrs] = {}
    for pool in pools:
        if uses[pool.inputs[0]] == 1 and _are_free(pool, kept, uses, differentiated):
            attrs = _attrs(graph, pool)
            if attrs is not None and _has_kernel(graph, pool, attrs, train, has_kernel):
                found[pool] = attrs
    if not found:
        return graph
    gone = {pool.inputs[0].node for pool in found}
    r = Rewriter(graph)
    for node in graph.nodes:
        if node in found:
            conv = node.inputs[0].node
            ins = [r.of(e) for e in conv.inputs]
            made = r.add(_pooled_convolution, found[node], ins, conv.name)
            if _rectifies(conv):
                made = r.add(Activation, Activation.Attrs(act_type="relu"), [Entry(made)], node.name)
            r.put(Entry(node), Entry(made))
        elif node not in gone:
            r.keep(node)
    return r.graph(ordered=False)


def _are_free(
    pool: Node, kept: Set[Entry], uses: Mapping[Entry, int], differentiated: Set[Node | None]
) -> bool:
    """Whether a pooling and what it reads are a convolution and its pooling that nobody else looks into."""
    conv = pool.inputs[0].node
    is_alone = conv.op is _convolution_channels_last or (_rectifies(conv) and not _has_more(conv))
    if not is_alone or pool.inputs[0] in kept or Entry(pool, 1) in uses:
        return False
    if conv.annotations or pool.annotations or not differentiated.isdisjoint((conv, pool)):
        return False
    data = conv.inputs[0].node
    return not (is_norm(data) or data.op is _norm_act)  # such data need not be there; see normed_loads.py


def _rectifies(conv: Node) -> bool:
    return conv.op is _convolution_epilogue and conv.attrs.relu


def _has_more(conv: Node) -> bool:
    return conv.attrs.scale or conv.attrs.add


def _attrs(graph: Graph, pool: Node) -> PooledAttrs | None:
    """What both do, in bands; None where that saves nothing."""
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
    own = {f.name: getattr(conv.attrs, f.name) for f in fields(ChannelsLastAttrs)}
    rank = len(pooled) - 2
    return PooledAttrs(
        **own,
        pool_kernel=made[1:-1] if a.global_pool else a.kernel,
        pool_stride=(1,) * rank if a.global_pool else a.stride,
        pool_pad=(0,) * rank if a.global_pool else a.pad,
        pooling_convention="valid" if a.global_pool else a.pooling_convention,
        samples=-(-count // (count // samples)),  # bands are about equal
    )


def _has_kernel(
    graph: Graph, pool: Node, attrs: PooledAttrs, train: bool, has_kernel: Callable[[Request], bool]
) -> bool:
    conv = pool.inputs[0].node
    ins = tuple(graph.shapes[e] for e in conv.inputs)
    outs = tuple(graph.shapes[Entry(pool, i)] for i in range(2))
    dtypes = tuple(graph.dtypes[e] for e in conv.inputs)
    r = Request(_pooled_convolution, attrs, ins, outs, dtypes[0], dtypes, None, train)
    grad_op = _pooled_convolution.grad_op
    assert grad_op is not None
    return has_kernel(r) and (not train or has_kernel(replace(r, op=grad_op)))
