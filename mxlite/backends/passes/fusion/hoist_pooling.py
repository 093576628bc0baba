"""Hoisting of max pooling over a monotonic activation.

    activation -> max pooling     becomes     max pooling -> activation

The maximum of f(x) is f of the maximum of x if f never falls. The activation then computes one number for
each window, forward and backward, and backward keeps its small result in place of the large one: max pooling
itself keeps only the index of each maximum.

If f is constant on a range (a rectifier below 0), the index may point to another element of the window. The
gradient is 0 there either way.
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
    Stage.FORWARD, after=("channels_last", "epilogue", "norm_act"), anchors=(Pooling, PoolingChannelsLast)
)
def hoist_pooling(step: Step, target: Target) -> Step:
    """The step with activations moved behind the max pooling that is their only reader. O(nodes).

    The two nodes exchange their names, since the activation now computes the result of the pooling. Nodes
    with annotations do not move. At inference most rectifiers are fused into a convolution before, see
    `epilogue.py`.
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

    def add(r: Rewriter, node: Node) -> None:
        act = found[node]
        (source,) = act.inputs
        assert node.op is not None and act.op is not None
        small = r.add(node.op, node.attrs, [r.of(source)], act.name)
        r.put(Entry(node), Entry(r.add(act.op, act.attrs, [Entry(small)], node.name)))

    return step.substituted(found, add, gone=set(found.values()), ordered=False)


def _is_rising(node: Node) -> bool:
    return is_relu(node) or (node.op is Activation and node.attrs.act_type in _RISING)


def _is_whole_max_pool(graph: Graph, node: Node) -> bool:
    """True for max pooling with data in every window: an empty window has the maximum -inf."""
    if node.op not in (Pooling, PoolingChannelsLast) or node.attrs.pool_type != "max":
        return False
    w = windows(node.attrs, graph.shapes[node.inputs[0]], node.op is PoolingChannelsLast)
    return all(
        p < k and (o - 1) * s - p < n for n, k, s, p, o in zip(w.size, w.kernel, w.stride, w.pad, w.out)
    )
