"""ROIPooling and ROIAlign: a thread for each result, and backward for each pixel, without atomic additions.

A pixel looks at all regions of its image. ROIAlign's weights of rows and columns are computed first, once for
all channels.
"""

from __future__ import annotations

from typing import Any

from .....ops.scratch import accumulator
from .....ops.vision.roi import ROIAlign, ROIPooling
from ....base import ChosenKernel, Request
from ...compiler.source import structure
from ...handwritten.each import Launches, typed
from ...rows import answer, are_alike, row, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.scratch import Scratch

Regions: Any = structure("regions", "Regions")
Made = tuple[Launches, Regions]


def _made(device: Device, r: Request) -> Made | None:
    a, (data, rois) = r.attrs, r.inputs
    if not are_alike(r):
        return None
    made = Regions(a.spatial_scale, rois[0], *data, *a.pooled_size)
    made.samples, made.aligned = getattr(a, "sample_ratio", 0), getattr(a, "aligned", False)
    made.by_position = getattr(a, "position_sensitive", False)
    return Launches(device, typed(str(r.dtype), "regions")), made


@row(_made, "cuda roi pooling")
def _pooling(made: Made, a: Any, data: Any, rois: Any, *, out: Any, index: Any, work: Any) -> Run:
    kernels, regions = made
    n = out.size if out is not None else index.size
    return kernels.each("roi_max", n, data, rois, out, index, regions)


@row(_made, "cuda roi pooling gradient")
def _pooling_gradient(
    made: Made, a: Any, d_out: Any, rois: Any, index: Any, *, d_data: Any, work: Any
) -> Run:
    kernels, regions = made
    return kernels.each("roi_max_gradient", d_data.size, d_out, rois, index, d_data, regions)


def _align(device: Device, r: Request) -> ChosenKernel | None:
    made = _made(device, r)
    if made is None:
        return None
    (kernels, regions), back = made, r.op.forward_op is not None
    (count, _), (h, w), (ph, pw) = r.inputs[1], r.inputs[0][2:], r.attrs.pooled_size
    item = accumulator(r.dtype).itemsize
    scratch = Scratch(down=count * ph * h * item, along=count * pw * w * item, ranges=count * (ph + pw) * 8)

    def connect(a: Any, first: Any, second: Any, *, work: Any, **outs: Any) -> Run:
        (target,) = outs.values()
        tables = list(scratch.parts(work).values())
        weights = kernels.each("roi_weights", count * (ph + pw), second, *tables, regions)
        name, used = ("roi_mean_gradient", tables[:2]) if back else ("roi_mean", tables)
        return InOrder([weights, kernels.each(name, target.size, first, second, *used, target, regions)])

    return answer(r, connect, scratch.nbytes, "cuda roi align gradient" if back else "cuda roi align")


rows = table((ROIPooling, _pooling, _pooling_gradient), (ROIAlign, _align, _align))
