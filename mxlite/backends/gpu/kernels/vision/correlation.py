"""Correlation of two maps: a thread for each result, backwards for each pixel, without atomic additions."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.nn.correlation import Correlation, correlation_places
from ....base import Request
from ...compiler.source import structure
from ...handwritten.each import Launches, typed
from ...rows import are_alike, row, table
from ...runtime.device import Device, InOrder, Run

Patches: Any = structure("correlation", "Patches")
Made = tuple[Launches, Patches]


def _made(device: Device, r: Request) -> Made | None:
    a, data = r.attrs, r.inputs[0]
    if not are_alike(r) or not all(map(prod, (*r.inputs, *r.outputs))):
        return None
    p = correlation_places(a, data)
    steps = a.kernel_size, a.stride1, a.stride2, a.pad_size, a.max_displacement, a.is_multiply
    patches = Patches(*data[1:], *p.out, p.reach, *steps)
    return Launches(device, typed(str(r.dtype), "correlation")), patches


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


rows = table((Correlation, _forward, _backward))
