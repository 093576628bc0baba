"""ROIPooling and ROIAlign: a thread for each result, and backward for each pixel, without atomic additions.

A pixel looks at all regions of its image. ROIAlign's weights of rows and columns are computed first, once for
all channels.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.vision.roi import ROIAlign, ROIPooling
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating
from ...compiler.structure import declared
from ...handwritten.each import each, typed
from ...handwritten.layout import MOST
from ...runtime.device import Device, InOrder, Run


class _Regions(ctypes.Structure):
    """The structure Regions of regions.cuh."""

    _fields_ = declared("regions", "Regions")

    def __init__(self, a: Any, data: Shape, rois: Shape) -> None:
        super().__init__(a.spatial_scale, rois[0], *data, *a.pooled_size)
        self.samples = getattr(a, "sample_ratio", 0)
        self.aligned = getattr(a, "aligned", False)
        self.by_position = getattr(a, "position_sensitive", False)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def fits(r: Request) -> bool:
        small = all(prod(s) <= MOST for s in (*r.inputs, *r.outputs))
        return small and floating(*r.dtypes) and len(set(r.dtypes)) == 1

    def pooling(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        text, regions = typed(str(r.dtype), "regions"), _Regions(r.attrs, *r.inputs)

        def connect(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, index: Any, work: Any) -> Run:
            n = 0 if out is None and index is None else prod(r.outputs[0])
            return each(device, text, "roi_max", n, data, rois, out, index, regions)

        return connected(connect, 0, "cuda roi pooling", like=r.op.forward)

    def pooling_gradient(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        text, regions = typed(str(r.dtype), "regions"), _Regions(r.attrs, *r.inputs)

        def connect(xp: Any, a: Any, d_out: Any, rois: Any, index: Any, *, d_data: Any, work: Any) -> Run:
            n = 0 if d_data is None else d_data.size
            return each(device, text, "roi_max_gradient", n, d_out, rois, index, d_data, regions)

        return connected(connect, 0, "cuda roi pooling gradient", like=r.op.forward)

    def align(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        text, regions = typed(str(r.dtype), "regions"), _Regions(r.attrs, *r.inputs)
        back = r.op.forward_op is not None
        (count, _), (h, w), (ph, pw) = r.inputs[1], r.inputs[0][2:], r.attrs.pooled_size
        item = 8 if str(r.dtype) == "float64" else 4
        pieces = [-(-count * n // 256) * 256 for n in (ph * h * item, pw * w * item, (ph + pw) * 8)]

        def connect(xp: Any, a: Any, first: Any, second: Any, *, work: Any, **made: Any) -> Run:
            (target,) = made.values()
            if target is None or not target.size:
                return InOrder([])
            begin, tables = 0, []
            for nbytes in pieces:
                tables.append(work[begin : begin + nbytes])
                begin += nbytes
            weights = each(device, text, "roi_weights", count * (ph + pw), second, *tables, regions)
            name, tables = ("roi_mean_gradient", tables[:2]) if back else ("roi_mean", tables)
            arrays = first, second, *tables, target
            return InOrder([weights, each(device, text, name, target.size, *arrays, regions)])

        name = "cuda roi align gradient" if back else "cuda roi align"
        return connected(connect, sum(pieces), name, like=r.op.forward)

    assert ROIPooling.grad_op is not None and ROIAlign.grad_op is not None
    return {
        ROIPooling: [pooling],
        ROIPooling.grad_op: [pooling_gradient],
        ROIAlign: [align],
        ROIAlign.grad_op: [align],
    }
