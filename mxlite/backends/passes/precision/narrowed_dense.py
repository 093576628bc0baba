"""In mixed precision, dense layers of few samples narrow their weight themselves, some rows at a time.

    weight -> Cast -> FullyConnected(data, .)            _narrowed_dense(data, weight)
              Cast -> gradient in data                   _narrowed_dense_d_data(grad, weight)

So the copy of the weight in 16 bits is never there as a whole; see `narrowed_dense.py`. The copy must have no
other reader. It comes after `split_gradients`: the gradient in the weight reads no weight then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ...base import Request
from ...fused.narrowed_dense import NarrowedDense, NarrowedDenseDataGradient, NarrowedGradientAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import inputs_by_name, output, request_of
from ..target import Target

LEAST_BYTES = 512 * 1024
"""Of a copy that is not made."""

MOST_SAMPLES = 128
"""Rows of data up to which to read the weight takes much of the time, and a copy of it most of the bytes.
With more, products of some rows of the weight are slower than one of all."""


@graph_pass(Stage.STEP, after=("split_gradients", "wide_dense"))
def narrowed_dense(step: Step, target: Target) -> Step:
    """Dense layers that narrow their weight, where code can be generated for that. O(inputs)."""
    graph = step.graph
    found = _matches(step, target.has_kernel) if target.storable() else {}
    if not found:
        return step
    of_reader = {reader: cast for cast, readers in found.items() for reader in readers}
    made = Rewriter(graph)
    for node in made.walk(step.num_forward):
        if node in found:
            continue
        if node in of_reader:
            (weight,) = made.inputs(of_reader[node])
            made.replace(node, _narrowed(graph, node, made.inputs(node), weight))
        else:
            made.keep(node)
    return step.rewritten(made)


def _matches(step: Step, has_kernel: Callable[[Request], bool]) -> dict[Node, Sequence[Node]]:
    """The casts that need not be, with their readers."""
    found: dict[Node, Sequence[Node]] = {}
    for cast in step.operators:
        if cast.op is Cast and _is_large(step.graph, cast) and Entry(cast) not in step.shown:
            those = step.readers.all(Entry(cast))
            if those and all(_takes(step.graph, n, cast, has_kernel) for n in those):
                found[cast] = those
    return found


def _is_large(graph: Graph, cast: Node) -> bool:
    made = Entry(cast)
    return (
        graph.dtypes[cast.inputs[0]] == float32
        and graph.dtypes[made].itemsize == 2
        and graph.nbytes(made) >= LEAST_BYTES
    )


def _takes(graph: Graph, node: Node, cast: Node, has_kernel: Callable[[Request], bool]) -> bool:
    """Whether a reader of the copy is a dense layer of few samples, or its gradient in data alone."""
    named = inputs_by_name(node)
    if named.get("weight") != Entry(cast) or [e.node for e in node.inputs].count(cast) > 1:
        return False
    if node.op is FullyConnected:
        rows = prod(graph.shapes[Entry(node)][:-1])
    elif node.op is FullyConnected.grad_op and "data" in node.absent:
        rows = prod(graph.shapes[named["d_out"]][:-1])
    else:
        return False
    if rows > MOST_SAMPLES:
        return False
    new = _narrowed(graph, node, node.inputs, cast.inputs[0])
    assert new.op is not None
    outs = tuple(graph.shapes[output(node, n)] for n in new.output_names)
    return has_kernel(request_of(graph, new.op, new.attrs, new.inputs, outs))


def _narrowed(graph: Graph, node: Node, inputs: tuple[Entry, ...], weight: Entry) -> Node:
    """What does the same as `node`, on `inputs`, with the wide weight."""
    named = dict(zip(node.input_names, inputs)) | {"weight": weight}
    if node.op is FullyConnected:
        return replace(node, op=NarrowedDense, inputs=tuple(named[n] for n in node.input_names))
    attrs = NarrowedGradientAttrs(graph.shapes[output(node, "d_data")])
    return Node(NarrowedDenseDataGradient, attrs, (named["d_out"], weight), node.name)
