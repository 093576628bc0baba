"""An update widens a 16-bit gradient itself.

In mixed precision a gradient of 16 bits is cast to float32 for the update of the float32 weight:

    product -> d_weight, 16 bits -> cast -> d_weight, 32 bits -> update

Both are there while the cast runs, which for the largest weight is often the fullest moment of a step. The
update that reads 16 bits and widens them in registers gives the same bits without the second array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...core.dtype import float32, is_floating
from ...graph import Entry, Graph, Node
from ...graph.opdef import DType
from ...ops.elementwise.cast import Cast


def narrow_gradients(
    graph: Graph, kept: frozenset[Entry], num_forward: int, takes: Callable[[Graph, Node, DType], bool]
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with updates that read gradients as they were before a widening cast. O(nodes).

    `takes` says whether the backend's kernel of an update takes gradients of that type. Casts that others
    read too, or that lie in the forward pass, stay.
    """
    uses = graph.uses()
    first = set([n for n in graph.nodes if n.op is not None][:num_forward])
    changed: dict[Node, Node] = {}
    gone: set[Node] = set()
    for node in graph.effects:
        if getattr(node.op, "form", "") != "fused":
            continue
        grad = node.inputs[1]
        cast = grad.node
        if cast.op is not Cast.grad_op or uses[grad] > 1 or grad in kept or cast in first:
            continue
        (narrow,) = cast.inputs
        dtype = graph.dtypes[narrow]
        is_wider = is_floating(dtype) and dtype.itemsize == 2 and graph.dtypes[grad] == float32
        if is_wider and takes(graph, node, dtype):
            changed[node] = replace(node, inputs=(node.inputs[0], narrow, *node.inputs[2:]))
            gone.add(cast)
    if not changed:
        return graph, {}, num_forward
    effects = tuple(changed.get(n, n) for n in graph.effects)
    order = tuple(changed.get(n, n) for n in graph.nodes if n not in gone)
    return replace(graph, effects=effects, order=order), {}, num_forward
