"""Casts of mixed precision that are more than elementwise: for loss scaling, and of many arrays at once.

Each element is read and written once. The loss scale is read from device memory when the kernel runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from .....graph.opdef import DType
from .....ops.elementwise.cast import amp_multicast, Shore
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...handwritten.dense_casts import cast_all
from ...handwritten.elements import fill
from ...rows import answer, At, gradient_of, row, table, where
from ...runtime.device import Device, InOrder, Run
from .casts import casts
from .elementwise import Loop


def _shore_gradient(device: Device, r: Request) -> ChosenKernel | None:
    """``d_data = d_out * S`` or ``d_out / S``, as `scale` has both factors."""
    made: DType = r.dtypes[0]
    _, (given,) = Shore.infer_type(r.attrs, *r.dtypes)
    if not floating(given, made):
        return None
    shape = r.inputs[0]
    loop = Loop(device, lambda t, d, s: d * s, (shape, (1,)), (given, r.dtypes[1]), shape, made)

    def connect(a: Any, d_out: Any, scale: Any, *, d_data: Any) -> Run:
        return loop.call(d_out, scale[1:2] if a.enters else scale[:1], d_data)

    return answer(r, connect, 0, "cuda scaled cast")


@row(where(lambda r: True), "cuda casts")
def _multicast_gradient(at: At, a: Any, d_outs: Any, *, d_args: Any) -> Run:
    pairs = [(x, y) for x, y in zip(d_outs, d_args) if y is not None]
    zeros = [fill(at.device, y, 0) for x, y in pairs if x is None]
    return InOrder([*zeros, cast_all(at.device, [(y, x) for x, y in pairs if x is not None])])


rows = table(
    (gradient_of(Shore), _shore_gradient, None),
    (amp_multicast, partial(casts, name="cuda casts"), _multicast_gradient),
)
