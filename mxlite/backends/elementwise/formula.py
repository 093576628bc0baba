"""Calls of elementwise operators as steps of a computation, from what they declare."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...graph.gradient import GradAdd, OnesLike
from ...graph.ir import Shape
from ...graph.opdef import DType, Op
from ...ops import ALL
from ...te.computation import Computation, Node, pruned, Tensor
from ...te.inclusion import included
from ...te.operator import computation


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


def write(
    t: Computation, op: type[Op], attrs: Any, inputs: Mapping[str, Tensor], dtype: DType
) -> Mapping[str, Tensor] | None:
    """Write one call of `op` on each element of tensors of `t`: results by output name, for possible outputs;
    None: it declares no steps of each element, or not for these attributes.

    `dtype` is that of the forward call's first input. Inputs of which only the shape matters are left out.
    """
    if not is_elementwise(op):
        return None
    found = _recorded(op, attrs, repr(attrs), frozenset(inputs), dtype)  # type: ignore[arg-type]
    if found is None:
        return None
    nodes, outputs = found
    made = included(t, nodes, lambda name, shape: inputs[name])
    return {n: made[i] for n, i in outputs.items()}


Recorded = tuple[tuple[Node, ...], dict[str, int]]
"""The nodes that are needed, and the numbers of the outputs."""


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
    nodes, numbers = pruned(t, list(outputs.values()))
    if any(node[0] == "input" and node[1] not in given for node in nodes):
        return None
    return nodes, dict(zip(outputs, numbers))
