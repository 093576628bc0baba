"""The sum of the rows of a matrix in their order: what `comm/adding.py` computes, on a GPU."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ..compiler.kinds import FLOATS, wide
from ..compiler.source import assembled, kernel, KernelSource, NAMES
from ..runtime.device import Device, Run
from .each import each, THREADS


def ordered_sum(device: Device, rows: Any) -> Run:
    """Replace row 0 by ((row 0 + row 1) + row 2) + ...; of 16 bits in float32, rounded once; of uint8, their
    union.
    """
    count, length = rows.shape
    return each(device, source(str(rows.dtype)), "ordered_sum", length, rows, ctypes.c_int(count))


@functools.cache
def source(dtype: str) -> KernelSource:
    """The kernel "ordered_sum" of one dtype."""
    kind = NAMES[dtype]
    if dtype in FLOATS:
        inner, load, store, add = wide(dtype), f"to<{wide(dtype)}>({{}})", f"from<{kind}>(sum)", "sum + {}"
    else:
        inner, load, store, add = kind, "{}", "sum", "sum | {}" if dtype == "uint8" else "sum + {}"
    first, next_ = load.format("rows[at]"), load.format("rows[row * length + at]")
    body = [
        "MX_EACH(at, length) {",
        f"    {inner} sum = {first};",
        f"    for (int64 row = 1; row < count; ++row) sum = {add.format(next_)};",
        f"    rows[at] = {store};",
        "}",
    ]
    parameters = ["int64 length", f"{kind} *rows", "int count"]
    return assembled("types", "index", kernel("ordered_sum", parameters, body, THREADS))
