"""Epilogue fusion of a dense layer, or its gradient in data, with the elementwise work behind it.

    FullyConnected -> relu -> ...                       becomes  _dense_epilogue
    gradient in data of FullyConnected -> that of gelu  becomes  _dense_slope

A kernel of matrix products applies the rest to each number of its result before it stores it. Which
expressions it takes is its own matter: the longest chain that a kernel answers for is fused. The arrays
between must have no other reader, and be no output. A GELU in training keeps its input for its gradient: its
forward node is not fused, so that a plan may drop its result and recompute it without the product. The new
node takes the place of the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ....graph import Entry, Graph, Node, Op, Rewriter
from ....ops.nn.dense import FullyConnected
from ...elementwise.epilogue import Applied, Epilogue
from ...elementwise.formula import is_elementwise
from ...fused.dense_epilogue import DenseEpilogue, DenseEpilogueAttrs, DenseSlope, DenseSlopeAttrs
from ...rewrite import graph_pass, Readers, Stage, Step
from ..entries import output, request_of
from ..target import Target
from .norm_act import agree

MOST_CALLS = 8  # of an epilogue


class _Fused(NamedTuple):
    """The node that stands for a product and the nodes behind it, the last of which is `end`."""

    op: type[Op]
    attrs: Any
    inputs: tuple[Entry, ...]
    nodes: tuple[Node, ...]

    @property
    def end(self) -> Node:
        return self.nodes[-1]


@graph_pass(Stage.STEP, after=("split_gradients",), anchors=(FullyConnected,))
def dense_epilogue(step: Step, target: Target) -> Step:
    """The step with elementwise work fused into products. O(nodes)."""
    graph = step.graph
    found: dict[Node, _Fused] = {}  # by product
    for node in graph.nodes:
        made = _result(node)
        if made is None or not target.finishes(step.train, graph.shapes[made]):
            continue
        for fused in _choices(graph, step.readers, node):
            out = (graph.shapes[Entry(fused.end)],)
            request = request_of(graph, fused.op, fused.attrs, fused.inputs, out, train=step.train)
            if target.has_kernel(request):
                found[node] = fused
                break

    def add(made: Rewriter, node: Node) -> None:
        op, attrs, inputs, _ = fused = found[node]
        end = fused.end
        new = Node(op, attrs, made.all_of(inputs), end.name, annotations=dict(end.annotations))
        made.node_of[node] = new
        made.order.append(new)
        made.put(Entry(end), Entry(new))

    return step.substituted(found, add, gone={n for fused in found.values() for n in fused.nodes})


def _result(node: Node) -> Entry | None:
    """The result of a dense layer, or of its gradient in data alone; None for any other node."""
    if node.op is FullyConnected:
        return Entry(node)
    is_gradient = node.op is FullyConnected.grad_op and node.absent == {"data"}
    return Entry(node, node.output_names.index("d_data")) if is_gradient else None


def _choices(graph: Graph, readers: Readers, node: Node) -> Iterator[_Fused]:
    """The fusions that the product `node` may have, the longest first."""
    if node.op is FullyConnected:
        yield from _layers(graph, readers, node)
    elif (slope := _slope(graph, readers, node)) is not None:
        yield slope


def _layers(graph: Graph, readers: Readers, node: Node) -> Iterator[_Fused]:
    a, kind = node.attrs, graph.dtypes[Entry(node)]
    chain: list[Node] = []
    at = Entry(node)
    while len(chain) < MOST_CALLS and (reader := readers.only(at)) is not None:
        if not _is_applied(graph, node, reader, at):
            break
        chain.append(reader)
        at = Entry(reader)
    for count in range(len(chain), 0, -1):
        calls = [Applied(n.op, n.attrs, n.input_names[0]) for n in chain[:count] if n.op is not None]
        epilogue = Epilogue.of(calls, kind)
        if epilogue is not None:
            attrs = DenseEpilogueAttrs(a.num_hidden, a.no_bias, a.flatten, epilogue)
            yield _Fused(DenseEpilogue, attrs, node.inputs, tuple(chain[:count]))


def _is_applied(graph: Graph, node: Node, reader: Node, at: Entry) -> bool:
    """True if `reader` is an elementwise function of `at` alone, which nothing computes again by itself."""
    op, out = reader.op, Entry(reader)
    return (
        op is not None
        and reader.forward is None
        and reader.inputs == (at,)
        and is_elementwise(op)
        and op.recomputable
        and op.cheap
        and reader.output_names == ("out",)
        and (graph.shapes[out], graph.dtypes[out]) == (graph.shapes[at], graph.dtypes[at])
        and agree(node, reader)
    )


def _slope(graph: Graph, readers: Readers, node: Node) -> _Fused | None:
    """The gradient in data with that of the activation before the layer."""
    made = output(node, "d_data")
    end = readers.only(made)
    if end is None or end.forward is None or end.op is None or not agree(node, end):
        return None
    named, product = end.named_inputs, node.named_inputs
    if named.get("d_out") != made or len(named) != 2 or end.output_names != ("d_data",):
        return None
    (known,) = (name for name in named if name != "d_out")
    call = Applied(end.op, end.attrs, "d_out", "d_data")
    epilogue = Epilogue.of([call], graph.dtypes[made], (known,))
    if epilogue is None:
        return None
    inputs = product["d_out"], product["weight"], named[known]
    return _Fused(DenseSlope, DenseSlopeAttrs(epilogue), inputs, (end,))
