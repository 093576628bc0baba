"""Operators that only move elements, and their gradients: the copies and fills that they declare.

Each copy reads and writes every element once, in a launch of its own or, if they are rows, one of several.
See gpu/handwritten/move.py and gpu/handwritten/move_together.py for the kernels. Gradients that sum (of tile,
repeat, broadcast axes) have no row here.
"""

from __future__ import annotations

from typing import Any

from ....base import ChosenKernel, Request
from ....moves import moves_of, OPERATORS
from ...handwritten.move_together import all_moved
from ...rows import answer, table
from ...runtime.device import Device, Run


def _row(device: Device, r: Request) -> ChosenKernel | None:
    found = moves_of(r)
    if found is None:
        return None

    def connect(a: Any, *inputs: Any, **rest: Any) -> Run:
        return all_moved(device, *found.call(inputs, rest))

    moving = any(m.source is not None for m in found.all)
    return answer(r, connect, 0, "cuda copy" if moving else "cuda fill")


rows = table(*((op, _row, _row if op.grad_op is not None else None) for op in OPERATORS))
