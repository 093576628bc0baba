"""Arrays that follow from shapes alone: shapes, sizes, indices. Each element is written once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....ops.shape.like import ContribIndexArray, shape_array, size_array
from ...compiler.source import assembled, kernel
from ...handwritten.each import each, THREADS
from ...handwritten.fill import filled
from ...handwritten.layout import MOST
from ...rows import At, row, table, where
from ...runtime.device import InOrder, Run


def _text() -> str:
    """The kernel "index_along": out[i] = i / stride % length for every `step`-th element from `first` on."""
    parameters = ["int64 n", "int64 *out", "int step", "int first", "int stride", "int length"]
    body = ["MX_EACH(at, n) out[at * step + first] = at / stride % length;"]
    return kernel("index_along", parameters, body, THREADS)


SOURCE = assembled("types", "index", _text())


@row(where(lambda r: True), "cuda fill")
def _numbers(at: At, a: Any, data: Any, *, out: Any) -> Run:
    numbers = data.shape if at.r.op is shape_array else (data.size,)
    parts = [out[i : i + 1] for i in range(len(numbers))]
    return InOrder([filled(at.device, x, np.int64(n).tobytes()) for x, n in zip(parts, numbers)])


@row(where(lambda r: prod(r.outputs[0]) <= MOST), "cuda places")
def _places(at: At, a: Any, data: Any, *, out: Any) -> Run:
    shape = data.shape
    axes = range(len(shape)) if a.axes is None else [i % len(shape) for i in a.axes]
    runs = []
    for k, axis in enumerate(axes):
        numbers = len(axes), k, prod(shape[axis + 1 :]), shape[axis]
        runs.append(each(at.device, SOURCE, "index_along", data.size, out, *numbers))
    return InOrder(runs)


rows = table((shape_array, _numbers, None), (size_array, _numbers, None), (ContribIndexArray, _places, None))
