"""Facts and costs of a kernel call, for tables and traces: no arrays, only numbers and names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..graph.opdef import Op, Shapes


@dataclass(frozen=True, slots=True)
class Facts:
    """One kernel call. `flops` is the operator's own count, `nbytes` that of its inputs and outputs.

    `name` is the node's, `operator` the operator's; `dtype` that of the first input.
    """

    name: str
    operator: str
    kernel: str
    dtype: str
    flops: float
    nbytes: int


def flops_of(
    op: type[Op], attrs: Any, shapes: tuple[Shapes, Shapes], wanted: Collection[str] | None = None
) -> float:
    """Arithmetic operations of a call; `shapes` are those of the forward call, also of a gradient.

    `wanted` are the outputs that are read, all unless given. The gradients of different inputs are taken as
    equally expensive, but for vectors: compared with the gradients of data and weight, that of a bias is
    free.
    """
    forward = op.forward_op
    if forward is None:
        return float(op.flops(attrs, *shapes))
    flops = float(forward.backward_flops(attrs, *shapes))
    if wanted is None:
        return flops
    rank = {f"d_{n}": len(s) for n, s in zip(forward.input_names(attrs), shapes[0])}
    large = [n in wanted for n in op.output_names(attrs) if rank.get(n, 0) > 1]
    return flops * sum(large) / len(large) if any(large) else flops
