"""What a kernel call is and costs, for tables and traces: no arrays, only numbers and names."""

from __future__ import annotations

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


def flops_of(op: type[Op], attrs: Any, shapes: tuple[Shapes, Shapes]) -> float:
    """Arithmetic operations of a call; `shapes` are those of the forward call, also of a gradient."""
    forward = op.forward_op
    return float((forward.backward_flops if forward else op.flops)(attrs, *shapes))
