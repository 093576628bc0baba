"""Correlation of two maps: a thread for each result, backwards for each pixel, without atomic additions."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.nn.correlation import Correlation, correlation_places
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating
from ...compiler.structure import declared
from ...handwritten.each import each, typed
from ...handwritten.layout import MOST
from ...runtime.device import Device, InOrder, nothing, Run


class _Patches(ctypes.Structure):
    """The structure Patches of correlation.cuh."""

    _fields_ = declared("correlation", "Patches")

    def __init__(self, a: Any, data: Shape) -> None:
        p = correlation_places(a, data)
        steps = a.stride1, a.stride2, a.pad_size
        super().__init__(*data[1:], *p.out, p.reach, a.kernel_size, *steps, a.max_displacement, a.is_multiply)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def fits(r: Request) -> bool:
        small = all(0 < prod(s) <= MOST for s in (*r.inputs, *r.outputs))
        return small and floating(*r.dtypes) and len(set(r.dtypes)) == 1

    def forward(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        text, patches = typed(str(r.dtype), "correlation"), _Patches(r.attrs, r.inputs[0])

        def connect(xp: Any, a: Any, data1: Any, data2: Any, *, out: Any, work: Any) -> Run:
            if out is None:
                return nothing
            return each(device, text, "correlate", out.size, data1, data2, out, patches)

        return connected(connect, 0, "cuda correlation", like=r.op.forward)

    def backward(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        text, patches = typed(str(r.dtype), "correlation"), _Patches(r.attrs, r.inputs[0])

        def connect(
            xp: Any, a: Any, d_out: Any, data1: Any, data2: Any, *, d_data1: Any, d_data2: Any, work: Any
        ) -> Run:
            runs = []
            for turned, (own, other, into) in enumerate(((data1, data2, d_data1), (data2, data1, d_data2))):
                if into is not None:
                    arrays = d_out, own, other, into, patches, turned
                    runs.append(each(device, text, "correlate_gradient", into.size, *arrays))
            return InOrder(runs)

        return connected(connect, 0, "cuda correlation gradient", like=r.op.forward)

    assert Correlation.grad_op is not None
    return {Correlation: [forward], Correlation.grad_op: [backward]}
