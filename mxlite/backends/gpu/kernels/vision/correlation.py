"""Correlation of two maps: a thread for each result, backwards for each pixel, without atomic additions."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.nn.correlation import Correlation, correlation_places
from ....base import Request
from ...compiler.structure import declared
from ...handwritten.each import Launches, typed
from ...rows import are_alike, row, table
from ...runtime.device import Device, InOrder, Run


class _Patches(ctypes.Structure):
    """The structure Patches of correlation.cuh."""

    _fields_ = declared("correlation", "Patches")

    def __init__(self, a: Any, data: Shape) -> None:
        p = correlation_places(a, data)
        steps = a.stride1, a.stride2, a.pad_size
        super().__init__(*data[1:], *p.out, p.reach, a.kernel_size, *steps, a.max_displacement, a.is_multiply)


def _made(device: Device, r: Request) -> tuple[Launches, _Patches] | None:
    if not are_alike(r) or not all(map(prod, (*r.inputs, *r.outputs))):
        return None
    return Launches(device, typed(str(r.dtype), "correlation")), _Patches(r.attrs, r.inputs[0])


Made = tuple[Launches, _Patches]


@row(_made, "cuda correlation")
def _forward(made: Made, a: Any, data1: Any, data2: Any, *, out: Any, work: Any) -> Run:
    kernels, patches = made
    return kernels.each("correlate", out.size, data1, data2, out, patches)


@row(_made, "cuda correlation gradient")
def _backward(
    made: Made, a: Any, d_out: Any, data1: Any, data2: Any, *, d_data1: Any, d_data2: Any, work: Any
) -> Run:
    kernels, patches = made
    runs = []
    for turned, (own, other, into) in enumerate(((data1, data2, d_data1), (data2, data1, d_data2))):
        if into is not None:
            arrays = d_out, own, other, into
            runs.append(kernels.each("correlate_gradient", into.size, *arrays, patches, turned))
    return InOrder(runs)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    return table(device, (Correlation, _forward, _backward))
