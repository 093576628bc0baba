"""Dropout, as generated code: no mask and no scratch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.nn.dropout import Dropout, DropoutChannelsLast, numbers
from ....base import ChosenKernel, connected, Request
from ...compiled import usable
from ...compiled.random.dropout import can_drop, dropped, steps_of
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run


def _row(r: Request) -> ChosenKernel | None:
    shape, dtype = r.inputs[0], r.dtype.name
    if not usable() or not can_drop(dtype) or 0 in shape:
        return None
    at = steps_of(numbers(r.attrs, shape, (r.op.forward_op or r.op) is DropoutChannelsLast))

    def connect(xp: Any, a: Any, x: Any, *, rng: Any, train: bool, work: Any, **made: Any) -> Run:
        (out,) = made.values()
        if out is None:
            return in_turn(())
        if a.p == 0 or not (train or a.mode == "always"):
            return functools.partial(np.copyto, out, x)
        return dropped(x, out, at, rng, a.p)

    return connected(connect, 0, "compiled dropout", like=r.op.forward)


_OPS: tuple[type[Op], ...] = (Dropout, DropoutChannelsLast)
SERVES = ("ops.nn.dropout",)
ROWS = kernel_rows(GENERATED, {op: _row for o in _OPS for op in (o, o.grad_op) if op is not None})
