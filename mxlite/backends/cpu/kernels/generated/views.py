"""Operators whose result is their data under another shape: nothing in place, else one copy."""

from __future__ import annotations

from ctypes import memmove
from functools import partial
from typing import Any

from .....ops.shape.reshape import View
from ....base import ChosenKernel, connected, Request
from ....call import in_turn, Run
from ...kernel_row import GENERATED, kernel_rows
from ...onednn.primitive import address_of


def _row(r: Request) -> ChosenKernel:
    def connect(xp: Any, a: Any, source: Any, **made: Any) -> Run:
        (target,) = made.values()
        if target is None or not target.size or address_of(target) == address_of(source):
            return in_turn(())
        copy: Any = partial(memmove, address_of(target), address_of(source), target.nbytes)
        copy.keep = source, target
        run: Run = copy
        return run

    return connected(connect, 0, "copy", like=r.op.signature, bound_only=True)


SERVES = ("ops.shape.reshape",)
_VIEWS = [op for op in View.__subclasses__() if not vars(op).get("abstract")]
ROWS = kernel_rows(GENERATED, {x: _row for op in _VIEWS for x in (op, op.grad_op) if x is not None})
