"""Casts that are no elementwise expression: to integers, and between float64 and others.

Each element is read and written once. Values out of an integer's range are as the device converts them.
"""

from __future__ import annotations

from typing import Any

from .....ops.elementwise.cast import amp_cast, Cast, CastLike
from ....base import ChosenKernel, Request
from ....fused.cast_group import FusedCasts
from ...compiler.kinds import known
from ...compiler.source import NAMES
from ...handwritten.dense_casts import cast_all
from ...rows import answer, At, row, table, where
from ...runtime.device import Device, Run


def _fits(r: Request) -> bool:
    _, outs = (r.op.forward_op or r.op).infer_type(r.attrs, *r.dtypes)
    return known(*r.dtypes, *outs)  # type: ignore[arg-type]


@row(where(_fits), "cuda cast")
def _cast(at: At, a: Any, x: Any, *like: Any, **made: Any) -> Run:
    (out,) = made.values()
    return cast_all(at.device, [(out, x)])


def _several(device: Device, r: Request) -> ChosenKernel | None:
    if not {r.attrs.dtype, *map(str, r.dtypes)} <= set(NAMES):
        return None
    return casts(device, r, f"cuda {r.attrs.count} x cast")


def casts(device: Device, r: Request, name: str) -> ChosenKernel:
    """The kernel of casts of any number of arrays, those that are wanted."""

    def connect(a: Any, *args: Any, outs: Any) -> Run:
        return cast_all(device, [(y, x) for x, y in zip(args, outs) if y is not None])

    return answer(r, connect, 0, name)


rows = table(*((op, _cast, _cast) for op in (Cast, amp_cast, CastLike)), (FusedCasts, _several, None))
