"""Arrays that follow from shapes alone: shapes, sizes, indices. Each element is written once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.shape.like import ContribIndexArray, shape_array, size_array
from ....base import ChosenKernel, Request
from ...compiler.source import assembled, kernel
from ...handwritten.each import each, THREADS
from ...handwritten.fill import filled
from ...handwritten.layout import MOST
from ...rows import answer
from ...runtime.device import Device, InOrder, Run


def _text() -> str:
    """The kernel "index_along": out[i] = i / stride % length for every `step`-th element from `first` on."""
    parameters = ["int64 n", "int64 *out", "int step", "int first", "int stride", "int length"]
    body = ["MX_EACH(at, n) out[at * step + first] = at / stride % length;"]
    return kernel("index_along", parameters, body, THREADS)


SOURCE = assembled("types", "index", _text())


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def numbers(r: Request) -> ChosenKernel | None:
        (shape,) = r.inputs
        found = shape if r.op is shape_array else (prod(shape),)

        def connect(a: Any, data: Any, *, out: Any) -> Run:
            parts = [out[i : i + 1] for i in range(len(found))]
            return InOrder([filled(device, x, np.int64(n).tobytes()) for x, n in zip(parts, found)])

        return answer(r, connect, 0, "cuda fill")

    def places(r: Request) -> ChosenKernel | None:
        (shape,) = r.inputs
        if prod(r.outputs[0]) > MOST:
            return None

        def connect(a: Any, data: Any, *, out: Any) -> Run:
            axes = range(len(shape)) if a.axes is None else [i % len(shape) for i in a.axes]
            runs = []
            for k, axis in enumerate(axes):
                numbers = len(axes), k, prod(shape[axis + 1 :]), shape[axis]
                runs.append(each(device, SOURCE, "index_along", prod(shape), out, *numbers))
            return InOrder(runs)

        return answer(r, connect, 0, "cuda places")

    return {shape_array: [numbers], size_array: [numbers], ContribIndexArray: [places]}
