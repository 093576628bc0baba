"""Adaptive mean pooling, as generated code: each image is a region whose parts read all channels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.scratch import scratch_bytes
from .....ops.vision.resize import AdaptiveAvgPooling2D
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.position_sensitive import code, plane_floats
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

_int64 = np.dtype(np.int64)


def _row(r: Request) -> ChosenKernel | None:
    (data,), (_, _, p, columns) = r.inputs, r.outputs[0]
    floats = storable() & {"float32", "float16", "bfloat16"}
    if not usable() or r.dtype.name not in floats or 0 in data or p != columns:
        return None
    backward, (n, c) = r.op.forward_op is not None, data[:2]
    module, each = code(r.dtype.name), plane_floats(*data[2:])
    threads = threads_for(r.dtype.itemsize * prod(data))
    at = np.arange(p)
    bounds = [x for size in data[2:] for x in (at * size // p, -(-(at + 1) * size // p))]
    table = np.tile(np.stack(bounds).astype(_int64), (n, 1, 1))
    images, group, parts = np.arange(n + 1, dtype=_int64), np.zeros(p, _int64), np.array([0, p], _int64)
    held = threads * each * backward
    keep = table, images, group, parts

    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> Run:
        if out is None:
            return in_turn(())
        addresses = [address_of(x) for x in (data, out, images, table, group)]
        return call(module, "forward", [*addresses, n, c, p, 1, *data.shape[1:]], threads, keep=keep)

    def gradient(xp: Any, a: Any, d_out: Any, *, d_data: Any, work: Any) -> Run:
        if d_data is None:
            return in_turn(())
        addresses = [address_of(x) for x in (d_data, d_out, images, images, table, parts, work)]
        sizes = [each, n, c, p, 1, *d_data.shape[1:]]
        return call(module, "backward", [*addresses, *sizes], threads, keep=keep)

    nbytes = scratch_bytes([((held,), np.dtype(np.float32))])
    return connected(gradient if backward else forward, nbytes, "compiled adaptive pooling")


_OPS: tuple[type[Op] | None, ...] = (AdaptiveAvgPooling2D, AdaptiveAvgPooling2D.grad_op)
SERVES = ("ops.vision.resize",)
ROWS = kernel_rows(GENERATED, {op: _row for op in _OPS if op is not None})
