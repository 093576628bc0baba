"""Casts that are no elementwise expression: to integers, and between float64 and others.

Each element is read and written once. Values out of an integer's range are as the device converts them.
"""

from __future__ import annotations

import functools
from typing import Any

from .....graph.opdef import Op
from .....ops.elementwise.cast import amp_cast, Cast, CastLike
from ....base import ChosenKernel, connected, Request
from ....fused.cast_group import FusedCasts
from ...compiler.source import NAMES
from ...handwritten.dense_casts import cast_all
from ...runtime.device import Device, nothing, Run


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request) -> ChosenKernel | None:
        of = r.op.forward_op or r.op
        _, outs = of.infer_type(r.attrs, *r.dtypes)
        if any(str(d) not in NAMES for d in (*r.dtypes, *outs)):
            return None

        def connect(xp: Any, a: Any, x: Any, *like: Any, **made: Any) -> Run:
            (out,) = made.values()
            return nothing if out is None else cast_all(device, [(out, x)])

        return connected(connect, 0, "cuda cast", like=r.op.forward)

    table: dict[type[Op], list[Any]] = {}
    for op in (Cast, amp_cast, CastLike):
        assert op.grad_op is not None
        table[op] = table[op.grad_op] = [row]
    return table | {FusedCasts: [functools.partial(_several, device)]}


def _several(device: Device, r: Request) -> ChosenKernel | None:
    if not {r.attrs.dtype, *map(str, r.dtypes)} <= set(NAMES):
        return None

    def connect(xp: Any, a: Any, *args: Any, outs: Any) -> Run:
        return cast_all(device, [(y, x) for x, y in zip(args, outs) if y is not None])

    return connected(connect, 0, f"cuda {r.attrs.count} x cast", like=r.op.forward)
