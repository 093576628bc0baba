"""Elementwise operators as steps of an expression, from what they declare."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...graph.gradient import GradAdd, OnesLike
from ...graph.ir import Shape
from ...graph.opdef import DType, Op
from ...ops import ALL
from ...te.computation import Node, operands_of
from ...te.operator import computation
from ...te.steps import in_type


def is_elementwise(op: type[Op] | None) -> bool:
    """True if `op`, or the forward operator whose gradient it is, declares steps of each element."""
    if op is None:
        return False
    forward = op.forward_op or op
    return forward.elementwise and forward.compute is not None


def elementwise_operators() -> list[type[Op]]:
    """All operators that are elementwise, and their gradients."""
    found: list[type[Op]] = [op for op in (*ALL, GradAdd, OnesLike) if is_elementwise(op)]
    return [*found, *(op.grad_op for op in found if op.grad_op is not None)]


def view_of(op: type[Op], attrs: Any, name: str, shape: Shape, whole: Shape) -> Shape:
    """The shape under which an array of such an operator, or of its gradient, broadcasts to `whole`."""
    return (op.forward_op or op).operand_shape(attrs, name.removeprefix("d_"), shape, whole)


def write(
    w: Any, op: type[Op], attrs: Any, inputs: Mapping[str, Any], dtype: DType
) -> Mapping[str, Any] | None:
    """Write one call of `op` with a Writer or a Computation: values by output name, for possible outputs;
    None: it declares no steps of each element, or not for these attributes.

    `dtype` is that of the forward call's first input. Inputs of which only the shape matters are left out.
    """
    if not is_elementwise(op):
        return None
    found = _recorded(op, attrs, repr(attrs), frozenset(inputs), dtype)  # type: ignore[arg-type]
    if found is None:
        return None
    nodes, outputs = found
    made: dict[int, Any] = {}
    for i, node in nodes:
        name = node[0]
        if name == "input":
            made[i] = inputs[node[1]]
        elif name == "constant":
            made[i] = w.constant(in_type(node[1], dtype))
        elif name == "number":
            made[i] = w.number(node[1])
        else:
            made[i] = w(name, *(made[x] for x in operands_of(node)))
    return {n: made[i] for n, i in outputs.items()}


Recorded = tuple[list[tuple[int, Node]], dict[str, int]]
"""The nodes that are needed, each with its number, and the numbers of the outputs."""


@functools.lru_cache(maxsize=4096)
def _recorded(op: Any, a: Any, spelled: str, given: frozenset[str], dtype: DType) -> Recorded | None:
    """The steps of a call, each on one element. `spelled` are the attributes as text: 0.0 and -0.0 are equal,
    but not the same constant.
    """
    forward = op.forward_op or op
    names = (*forward.input_names(a), *forward.output_names(a))
    known: dict[str, Shape] = {x: () for n in names for x in (n, f"d_{n}")}
    found = computation(op, a, known, given | set(op.output_names(a)), dtype)
    if found is None:
        return None
    t, made, _ = found
    outputs = {n: x.number for n, x in made.items() if x is not None}
    nodes = []
    needed = set(outputs.values())
    for i in range(len(t.nodes) - 1, -1, -1):
        node = t.nodes[i]
        if i not in needed:
            continue
        if node[0] == "input" and node[1] not in given:
            return None
        if node[0] not in ("input", "constant", "number"):
            needed.update(operands_of(node))
        nodes.append((i, node))
    return nodes[::-1], outputs
