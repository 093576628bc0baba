"""Maxima are taken before an activation that never falls.

    activation -> max pooling     becomes     max pooling -> activation

The largest of f(x) is f of the largest x. The activation then computes one number for each window, forwards
and backwards, and backward keeps its small result in place of the large one, which nobody else reads: max
pooling keeps but the index of each maximum.

Where f is flat (a rectifier below 0) the index may point to another element of the window. Its gradient is 0
there either way.
"""

from __future__ import annotations

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.activation import Activation
from ....ops.nn.pool import Pooling
from ....ops.nn.pool_channels_last import PoolingChannelsLast
from ....ops.nn.pool_kernels import windows
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .norm_act import is_relu

_RISING = ("relu", "sigmoid", "tanh", "softrelu", "softsign")


@graph_pass(
    Stage.FORWARD, after=("channels_last", "fold", "norm_act"), anchors=(Pooling, PoolingChannelsLast)
)
def hoist_pooling(step: Step, target: Target) -> Step:
    """Activations behind the max pooling that is their only reader. O(nodes).

    The activation gets the name and the annotations of the pooling, whose result it stands for, and the other
    way round. Nodes that are annotated stay where they are. At inference most rectifiers are part of a
    convolution before this pass comes, see `fold.py`.
    """
    graph, readers = step.graph, step.readers
    pools = {n: n.inputs[0].node for n in graph.nodes if _is_whole_max_pool(graph, n)}
    found = {
        pool: act
        for pool, act in pools.items()
        if _is_rising(act)
        and readers.only(pool.inputs[0]) is pool
        and not any(readers.wants(Entry(pool, i)) for i in range(1, pool.num_outputs))
        and not act.annotations
        and not pool.annotations
    }
    if not found:
        return step
    moved = set(found.values())
    r = Rewriter(graph)
    for node in r.walk():
        if node in found:
            act = found[node]
            (source,) = act.inputs
            assert node.op is not None and act.op is not None
            small = r.add(node.op, node.attrs, [r.of(source)], act.name)
            r.put(Entry(node), Entry(r.add(act.op, act.attrs, [Entry(small)], node.name)))
        elif node not in moved:
            r.keep(node)
    return step.rewritten(r, ordered=False)


def _is_rising(node: Node) -> bool:
    return is_relu(node) or (node.op is Activation and node.attrs.act_type in _RISING)


def _is_whole_max_pool(graph: Graph, node: Node) -> bool:
    """Whether it is max pooling whose windows all hold some data: of none at all, the maximum is -inf."""
    if node.op not in (Pooling, PoolingChannelsLast) or node.attrs.pool_type != "max":
        return False
    w = windows(node.attrs, graph.shapes[node.inputs[0]], node.op is PoolingChannelsLast)
    return all(
        p < k and (o - 1) * s - p < n for n, k, s, p, o in zip(w.size, w.kernel, w.stride, w.pad, w.out)
    )
