"""Position-sensitive pooling over regions, as generated code."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.scratch import carve, Piece, scratch_bytes
from .....ops.vision.position_sensitive import part_bounds, part_groups, PSROIPooling
from .....ops.vision.roi import images_of
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.position_sensitive import code, plane_floats
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

_TOGETHER = 256  # regions whose parts are computed at a time
_int64 = np.dtype(np.int64)


def _row(r: Request) -> ChosenKernel | None:
    data, rois = r.inputs
    floats = storable() & {"float32", "float16", "bfloat16"}
    if not usable() or r.dtype.name not in floats or 0 in data or 0 in rois:
        return None
    a, backward = r.attrs, r.op.forward_op is not None
    count, d, p, g = rois[0], a.output_dim, a.pooled_size, a.group_size or a.pooled_size
    module, group = code(r.dtype.name), part_groups(a, r.dtype)
    parts = np.searchsorted(group, np.stack([np.arange(g), np.arange(1, g + 1)], axis=1)).astype(_int64)
    threads, floats_each = threads_for(4 * max(prod(data), prod(r.outputs[0]))), plane_floats(*data[2:])
    pieces: list[Piece] = [
        ((rois[0],), _int64),
        ((count * 4 * p,), _int64),
        ((count * backward,), _int64),
        (((data[0] + 1) * backward,), _int64),
        ((threads * floats_each * backward,), np.dtype(np.float32)),
    ]

    def find(given: Any, image: Any, table: Any, order: Any, starts: Any) -> None:
        image[...] = images_of(given, data[0])
        bounds = table.reshape(count, 4, p)
        for k in range(0, count, _TOGETHER):
            some = np.asarray(given[k : k + _TOGETHER, 1:], np.float64)
            bounds[k : k + _TOGETHER] = part_bounds(a, some, data[2:], r.dtype)
        if backward:
            order[...] = np.argsort(image, kind="stable")
            starts[...] = np.searchsorted(image[order], np.arange(data[0] + 1))

    def forward(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        image, table, order, starts, _ = carve(work, pieces)
        addresses = [address_of(x) for x in (data, out, image, table, group)]
        sizes = [count, d, p, g, *data.shape[1:]]
        run = call(module, "forward", [*addresses, *sizes], threads, keep=(data, out, work, group))
        return in_turn((lambda: find(rois, image, table, order, starts), run))

    def gradient(xp: Any, a: Any, d_out: Any, rois: Any, *, d_data: Any, work: Any) -> Run:
        if d_data is None:
            return in_turn(())
        image, table, order, starts, held = carve(work, pieces)
        addresses = [address_of(x) for x in (d_data, d_out, order, starts, table, parts, held)]
        sizes = [floats_each, d_data.shape[0], d, p, g, *d_data.shape[1:]]
        run = call(module, "backward", [*addresses, *sizes], threads, keep=(d_data, d_out, work, parts))
        return in_turn((lambda: find(rois, image, table, order, starts), run))

    return connected(gradient if backward else forward, scratch_bytes(pieces), "compiled parts of regions")


_OPS: tuple[type[Op] | None, ...] = (PSROIPooling, PSROIPooling.grad_op)
SERVES = ("ops.vision.position_sensitive",)
ROWS = kernel_rows(GENERATED, {op: _row for op in _OPS if op is not None})
