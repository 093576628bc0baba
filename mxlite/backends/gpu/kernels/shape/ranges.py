"""Numbers at equal distances: computed in double, like the reference, and written once."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from .....graph.opdef import Op
from .....ops.shape.constant import Arange, Linspace, range_of
from .....ops.shape.like import ContribArangeLike
from ....base import ChosenKernel, connected, Request
from ...compiler.source import kernel, KernelSource, NAMES, shared
from ...handwritten.elements import blocks
from ...runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
FLOATS = ("float16", "bfloat16", "float32", "float64")


@functools.cache
def source(dtype: str) -> KernelSource:
    """The kernel "range": start + (i / repeat) * step, and `last` after `count` of them."""
    made = "from<T>(x)" if dtype in FLOATS else "(T)(int64)x"
    parameters = ["T *out", "int64 size", "int64 count", "int64 repeat"]
    parameters += ["double start", "double step", "double last"]
    body = [
        "MX_EACH(i, size) {",
        "    double x = i < count ? (double)(i / repeat) * step + start : last;",
        f"    out[i] = {made};",
        "}",
    ]
    text = f"typedef {NAMES[dtype]} T;\n" + kernel("range", parameters, body, THREADS)
    return KernelSource(shared("types", "index") + text)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request) -> ChosenKernel | None:
        _, (kind, *_) = r.op.infer_type(r.attrs, *r.dtypes)
        if str(kind) not in NAMES or str(kind) == "bool":
            return None

        def connect(xp: Any, a: Any, *like: Any, out: Any) -> Run:
            if out is None or out.size == 0:
                return nothing
            count, repeat, last = out.size, getattr(a, "repeat", 1), 0.0
            if r.op is Linspace:
                gaps = a.num - 1 if a.endpoint else a.num
                start, step = a.start, (a.stop - a.start) / gaps if gaps else 0.0
                if a.endpoint and gaps > 0:
                    count, last = count - 1, a.stop
            else:
                start, step = range_of(a)[0] if r.op is Arange else a.start, a.step
            values = [pointer(device.address(out)), *map(ctypes.c_int64, (out.size, count, repeat))]
            values += [ctypes.c_double(x) for x in (start, step, last)]
            function = device.function(source(str(out.dtype)), "range")
            grid = (blocks(device, out.size), 1, 1)
            return device.launch(function, grid, (THREADS, 1, 1), 0, Arguments(values))

        return connected(connect, 0, "cuda range", like=r.op.forward)

    return {op: [row] for op in (Arange, Linspace, ContribArangeLike)}
