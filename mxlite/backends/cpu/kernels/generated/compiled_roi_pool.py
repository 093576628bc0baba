"""Maxima of parts of regions, as generated code; the gradient needs only their positions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....ops.scratch import carve, Piece, scratch_bytes
from .....ops.vision.roi import images_of, pool_bounds, ROIPooling
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.position_sensitive import maxima
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

_TOGETHER = 256  # regions whose parts are computed at a time
_int64 = np.dtype(np.int64)


def _row(r: Request) -> ChosenKernel | None:
    data, rois = r.inputs
    floats = storable() & {"float32", "float16", "bfloat16"}
    if not usable() or r.dtype.name not in floats or 0 in data or 0 in rois or prod(data[2:]) >= 2**31:
        return None
    count, (high, wide) = rois[0], r.attrs.pooled_size
    threads = threads_for(4 * prod(r.outputs[0]))
    pieces: list[Piece] = [((count,), _int64), ((count, 2 * (high + wide)), _int64)]
    maxima(r.dtype.name, True, r.is_used("index"))  # compile now, while plans are made

    def connect(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, index: Any, work: Any) -> Run:
        if out is None and index is None:
            return in_turn(())
        image, table = carve(work, pieces)

        def find() -> None:
            image[...] = images_of(rois, data.shape[0])
            for k in range(0, count, _TOGETHER):
                some = np.asarray(rois[k : k + _TOGETHER, 1:], np.float64)
                rows, columns = pool_bounds(a, some, data.shape[2:])
                table[k : k + _TOGETHER, : 2 * high] = rows.reshape(len(some), -1)
                table[k : k + _TOGETHER, 2 * high :] = columns.reshape(len(some), -1)

        arrays = (data, out, index, image, table)
        addresses = [address_of(x) for x in arrays]
        module = maxima(r.dtype.name, out is not None, index is not None)
        sizes = [count, data.shape[1], high, wide, *data.shape[2:]]
        return in_turn((find, call(module, "forward", [*addresses, *sizes], threads, keep=arrays)))

    return connected(connect, scratch_bytes(pieces), "compiled maxima of regions")


SERVES = ("ops.vision.roi",)
ROWS = kernel_rows(GENERATED, {ROIPooling: _row})
