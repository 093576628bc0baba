"""In mixed precision, dense layers of few samples narrow their weight themselves, some rows at a time.

    weight -> Cast -> FullyConnected(data, .)            _narrowed_dense(data, weight)
              Cast -> gradient in data                   _narrowed_dense_d_data(grad, weight)

So the copy of the weight in 16 bits is never there as a whole; see `narrowed_dense.py`. The copy must have no
other reader. Run it after `split_gradients`: the gradient in the weight reads no weight then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from ...core.dtype import float32
from ...graph import Entry, Graph, Node, Rewriter
from ...ops.elementwise.cast import Cast
from ...ops.nn.dense import FullyConnected
from ..base import Request
from ..narrowed_dense import _narrowed_dense, _narrowed_dense_d_data, NarrowedGradientAttrs

LEAST_BYTES = 512 * 1024
"""Of a copy that is not made."""

MOST_SAMPLES = 128
"""Rows of data up to which to read the weight takes much of the time, and a copy of it most of the bytes.
With more, products of some rows of the weight are slower than one of all."""


def narrowed_dense(
    graph: Graph, kept: frozenset[Entry], num_forward: int, has_kernel: Callable[[Request], bool]
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with dense layers that narrow their weight; see `Backend.combine`. O(inputs).

    `has_kernel` says for such a layer, and for its gradient, whether the backend has a kernel.
    """
    found = _matches(graph, kept, has_kernel)
    if not found:
        return graph, {}, num_forward
    of_reader = {reader: cast for cast, readers in found.items() for reader in readers}
    made = Rewriter(graph)
    seen = gone = 0  # operators, and casts among the first `num_forward`
    for node in graph.nodes:
        seen += node.op is not None
        if node in found:
            gone += seen <= num_forward
            continue
        if node in of_reader:
            (weight,) = made.inputs(of_reader[node])
            made.replace(node, _narrowed(graph, node, made.inputs(node), weight))
        else:
            made.keep(node)
    return made.graph(), made.moved, num_forward - gone


def _matches(
    graph: Graph, kept: frozenset[Entry], has_kernel: Callable[[Request], bool]
) -> dict[Node, list[Node]]:
    """The casts that need not be, with their readers."""
    casts = {n for n in graph.nodes if n.op is Cast and _is_large(graph, n)}
    if not casts:
        return {}
    readers: dict[Node, list[Node]] = {cast: [] for cast in casts}
    hidden = {e.node for e in (*kept, *graph.outputs)}
    for node in graph.nodes:
        for e in node.inputs:
            if e.node in casts:
                readers[e.node].append(node)
    return {
        cast: those
        for cast, those in readers.items()
        if those and cast not in hidden and all(_takes(graph, n, cast, has_kernel) for n in those)
    }


def _is_large(graph: Graph, cast: Node) -> bool:
    made = Entry(cast)
    return (
        graph.dtypes[cast.inputs[0]] == float32
        and graph.dtypes[made].itemsize == 2
        and graph.nbytes(made) >= LEAST_BYTES
    )


def _takes(graph: Graph, node: Node, cast: Node, has_kernel: Callable[[Request], bool]) -> bool:
    """Whether a reader of the copy is a dense layer of few samples, or its gradient in data alone."""
    named = dict(zip(node.input_names, node.inputs))
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
    ins, outs = tuple(graph.shapes[e] for e in new.inputs), _made(graph, node, new)
    dtypes = tuple(graph.dtypes[e] for e in new.inputs)
    assert new.op is not None
    return has_kernel(Request(new.op, new.attrs, ins, outs, dtypes[0], dtypes))


def _made(graph: Graph, old: Node, new: Node) -> tuple[tuple[int, ...], ...]:
    return tuple(graph.shapes[Entry(old, old.output_names.index(n))] for n in new.output_names)


def _narrowed(graph: Graph, node: Node, inputs: tuple[Entry, ...], weight: Entry) -> Node:
    """What does the same as `node`, on `inputs`, with the wide weight."""
    named = dict(zip(node.input_names, inputs)) | {"weight": weight}
    if node.op is FullyConnected:
        return replace(node, op=_narrowed_dense, inputs=tuple(named[n] for n in node.input_names))
    shape = graph.shapes[Entry(node, node.output_names.index("d_data"))]
    attrs = NarrowedGradientAttrs(shape)
    return Node(_narrowed_dense_d_data, attrs, (named["d_out"], weight), node.name)
