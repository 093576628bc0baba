"""Interpolation of images between their elements: GridSample, RoiAlign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building.errors import NotSupportedError
from ...building.sampling import sampled
from ...building.value import GraphValue
from ..node import OnnxNode

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def grid_sample(n: OnnxNode) -> GraphValue:
    mode = n.text("mode", "linear")
    padding = n.choice("padding_mode", "zeros", "border", "reflection")
    return sampled(n[0], n[1], _MODES.get(mode, mode), padding, n.flag("align_corners"))


def roi_align(n: OnnxNode) -> GraphValue:
    b, rois, samples = n.builder, n[1], n[2]
    if n.choice("mode", "avg", "max") == "max":
        raise NotSupportedError("mode 'max'")
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    aligned = n.text("coordinate_transformation_mode", default) == "half_pixel"
    return b.op(
        "_contrib_ROIAlign",
        n[0],
        b.concat([b.cast(b.reshape(samples, (samples.size, 1)), rois.dtype), rois], 1),
        pooled_size=(n.whole("output_height", 1), n.whole("output_width", 1)),
        spatial_scale=n.real("spatial_scale", 1.0),
        sample_ratio=n.whole("sampling_ratio", 0) or -1,
        aligned=aligned,
    )


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"GridSample": grid_sample, "RoiAlign": roi_align}
