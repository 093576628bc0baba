"""The largest or smallest few numbers of each row, as generated code."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.index.sorting import topk
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.topk import code, MOST
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

_INDICES = {"float32", "int32"}


def _row(r: Request) -> ChosenKernel | None:
    a, (shape,), kind = r.attrs, r.inputs, r.dtype.name
    if not usable() or kind not in {"float32", "float16", "bfloat16"} & storable() or a.ret_typ == "mask":
        return None
    length = prod(shape) if a.axis is None else shape[a.axis]
    k = a.k or length
    if a.axis not in (None, -1, len(shape) - 1) or not 0 < k <= MOST or a.dtype not in _INDICES:
        return None
    rows = prod(shape) // length
    if not rows:
        return None
    has_values, has_indices = a.ret_typ != "indices", a.ret_typ != "value"
    nbytes = 8 * rows * (k + 1)

    def written(values: bool, places: bool, indices: bool) -> Any:
        return code(kind, a.is_ascend, values, places, a.dtype if indices else "")

    written(has_values, has_values and r.is_used("places"), has_indices)  # while plans are made
    threads = threads_for(rows * (r.dtype.itemsize * length + 64 * k))

    def connect(xp: Any, a: Any, data: Any, *, output0: Any, output1: Any, places: Any, work: Any) -> Run:
        values = output0 if has_values else None
        indices = output1 if a.ret_typ == "both" else output0 if has_indices else None
        arrays = (data, work, values, places, indices)
        made = [x is not None for x in arrays[2:]]
        if not any(made):
            return in_turn(())
        args = [*map(address_of, arrays), rows, length, k]
        return call(written(*made), "topk", args, threads, keep=arrays)

    return connected(connect, nbytes, "compiled topk", bits=())


SERVES = ("ops.index.sorting",)
ROWS = kernel_rows(GENERATED, {topk: _row})
