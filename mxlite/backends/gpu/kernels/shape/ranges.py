"""Numbers at equal distances: computed in double, like the reference, and written once."""

from __future__ import annotations

import ctypes
from typing import Any

from .....ops.shape.constant import Arange, Linspace, range_of
from .....ops.shape.like import ContribArangeLike
from ....base import Request
from ...compiler.kinds import FLOATS
from ...compiler.source import assembled, kernel, KernelSource, NAMES, typedefs
from ...handwritten.each import spread, THREADS
from ...rows import At, row, table, where
from ...runtime.device import Run


def source(dtype: str) -> KernelSource:
    """The kernel "range": start + (i / repeat) * step, and `last` after `count` of them."""
    number = "from<T>(x)" if dtype in FLOATS else "(T)(int64)x"
    parameters = ["T *out", "int64 size", "int64 count", "int64 repeat"]
    parameters += ["double start", "double step", "double last"]
    body = [
        "MX_EACH(i, size) {",
        "    double x = i < count ? (double)(i / repeat) * step + start : last;",
        f"    out[i] = {number};",
        "}",
    ]
    made = kernel("range", parameters, body, THREADS)
    return assembled("types", "index", typedefs(T=NAMES[dtype]), made)


def _fits(r: Request) -> bool:
    _, (kind, *_) = r.op.infer_type(r.attrs, *r.dtypes)
    return str(kind) in NAMES and str(kind) != "bool"


@row(where(_fits), "cuda range")
def _row(at: At, a: Any, *like: Any, out: Any) -> Run:
    count, repeat, last = out.size, getattr(a, "repeat", 1), 0.0
    if at.r.op is Linspace:
        gaps = a.num - 1 if a.endpoint else a.num
        start, step = a.start, (a.stop - a.start) / gaps if gaps else 0.0
        if a.endpoint and gaps > 0:
            count, last = count - 1, a.stop
    else:
        start, step = range_of(a)[0] if at.r.op is Arange else a.start, a.step
    sizes = map(ctypes.c_int64, (out.size, count, repeat))
    numbers = map(float, (start, step, last))
    return spread(at.device, source(str(out.dtype)), "range", out.size, out, *sizes, *numbers)


rows = table(*((op, _row, None) for op in (Arange, Linspace, ContribArangeLike)))
