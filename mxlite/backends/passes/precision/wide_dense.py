"""In mixed precision, dense layers read a float32 batch as it is, and narrow it some samples at a time.

    data -> Cast -> FullyConnected(., weight)          _wide_dense(data, weight)
            Cast -> gradient in the weight -> Cast     _wide_dense_d_weight(d_out, data)

So the copy of the batch in 16 bits is never there as a whole; see `wide_dense.py`. It is made again for the
backward pass in any case, so that either pass may do without by itself: if all that read it there can. A copy
of what is no variable stays: that dies when it is made.

The gradient in the weight is float32 at once, and its bias's a node of its own. That takes more bytes than a
gradient of 16 bits, or bands of one (`product_updates`): with so few samples that it is more than the copy,
the copy stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ...fused.wide_dense import WideDense, WideDenseWeightGradient, WideGradientAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import inputs_by_name, output, request_of
from ..target import Target

LEAST_BYTES, LEAST_SAMPLES = 256 * 1024, 512
"""Of a copy that is not made, and of the batch: several bands."""


@graph_pass(Stage.STEP, after=("split_gradients",))
def wide_dense(step: Step, target: Target) -> Step:
    """Dense layers that narrow their data, where code can be generated for that. O(inputs)."""
    search = _WideDenseSearch(step, target)
    changed = search.changed() if target.storable() else {}
    if not changed:
        return step
    graph = step.graph
    widened = {search.widening[n] for n in changed if n in search.widening}
    gone = widened | {
        cast
        for cast in changed.values()
        if all(changed.get(n) is cast for n in step.readers.all(Entry(cast)))
    }
    late = {cast for cast in changed.values() if cast not in gone and search.is_late(cast, changed)}
    result = Rewriter(graph)
    for node in result.walk(step.num_forward):
        if node in gone or node in late:
            continue
        for cast in [e.node for e in node.inputs if e.node in late]:
            if node not in changed:  # the first that still reads the copy, in the backward pass
                result.order.append(cast)
                late.discard(cast)
        if node not in changed:
            result.keep(node)
            continue
        named = dict(zip(node.input_names, result.inputs(node))) | {"data": changed[node].inputs[0]}
        if node.op is FullyConnected:
            wide = replace(node, op=WideDense, inputs=tuple(named[n] for n in node.input_names))
            result.replace(node, wide)
            continue
        new = _gradient(graph, node, named)
        result.order.append(new)
        result.put(Entry(search.widening[node]), Entry(new))
        if any(output(node, n) in step.read for n in node.output_names if n == "d_bias"):
            result.replace(node, replace(node, inputs=(named["d_out"],), absent=node.absent | {"data"}))
    return step.rewritten(result)


class _WideDenseSearch:
    """What can change. widening: the cast of each gradient in a weight, if that alone reads it."""

    def __init__(self, step: Step, target: Target) -> None:
        self.graph, self.shown, self.readers = step.graph, step.shown, step.readers
        self.forward, self.has_kernel = step.forward, target.has_kernel
        self.casts = [n for n in step.operators if n.op is Cast and self._is_copy(n)]
        self.widening: dict[Node, Node] = {}

    def changed(self) -> dict[Node, Node]:
        """The nodes that read a batch as it is, with the cast of it that they do without."""
        found: dict[Node, Node] = {}
        for cast in self.casts:
            readers = self.readers.all(Entry(cast))
            for part in (
                [n for n in readers if n in self.forward],
                [n for n in readers if n not in self.forward],
            ):
                if all(self._takes(n, cast) for n in part):
                    found |= dict.fromkeys(part, cast)
        return found

    def is_late(self, cast: Node, changed: Mapping[Node, Node]) -> bool:
        """Whether the backward pass alone reads the copy then: it is to be made there."""
        return cast in self.forward and not any(
            n in self.forward and changed.get(n) is not cast for n in self.readers.all(Entry(cast))
        )

    def _is_copy(self, cast: Node) -> bool:
        graph, made, source = self.graph, Entry(cast), cast.inputs[0]
        is_narrowing = graph.dtypes[source] == float32 and graph.dtypes[made].itemsize == 2
        is_large = is_narrowing and graph.nbytes(made) >= LEAST_BYTES
        return is_large and source.node.op is None and made not in self.shown

    def _takes(self, node: Node, cast: Node) -> bool:
        """Whether `node` can do without the copy that `cast` makes, and that is worth it."""
        graph = self.graph
        named = inputs_by_name(node)
        if named.get("data") != Entry(cast) or node.inputs.count(Entry(cast)) > 1:
            return False
        if node.op is FullyConnected:
            outs = (graph.shapes[Entry(node)],)
            ins = (cast.inputs[0], *node.inputs[1:])
            return prod(outs[0][:-1]) >= LEAST_SAMPLES and self._has(WideDense, node.attrs, ins, outs)
        if node.op is not FullyConnected.grad_op or node.absent != {"weight"} or "d_out" not in named:
            return False
        d_weight = output(node, "d_weight")
        cast_of = self.readers.only(d_weight)
        if cast_of is None or cast_of.op is not Cast.grad_op:
            return False
        weight = graph.shapes[d_weight]
        count = prod(graph.shapes[named["d_out"]]) // max(1, weight[0])
        if graph.dtypes[Entry(cast_of)] != float32 or count < max(LEAST_SAMPLES, 3 * weight[0]):
            return False
        self.widening[node] = cast_of
        ins = (named["d_out"], cast.inputs[0])
        return self._has(WideDenseWeightGradient, WideGradientAttrs(weight), ins, (weight,))

    def _has(self, op: Any, attrs: Any, ins: Sequence[Entry], outs: tuple[tuple[int, ...], ...]) -> bool:
        return self.has_kernel(request_of(self.graph, op, attrs, ins, outs))


def _gradient(graph: Graph, node: Node, named: Mapping[str, Entry]) -> Node:
    """The node that makes the gradient in the weight, as `node` does."""
    attrs = WideGradientAttrs(graph.shapes[output(node, "d_weight")])
    return Node(WideDenseWeightGradient, attrs, (named["d_out"], named["data"]), node.name)
