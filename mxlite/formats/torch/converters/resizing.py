"""Interpolation: of the axes of images, and at the positions of a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building import GraphValue, NotSupportedError
from ...building.resizing import Interpolation, resized
from ...building.sampling import sampled
from ..node import TorchNode

_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


def upsampled(n: TorchNode) -> GraphValue:
    """upsample_nearest2d, upsample_bilinear2d and the like, by scale factors or to a size."""
    x, shape = n["input"] if n.plain("input") is not None else n["self"], n.shape
    name = n.target.split(".")[1].removeprefix("_").removeprefix("upsample_")
    mode = name.removesuffix("_aa").rstrip("d").rstrip("123").removesuffix("_exact")
    corners = bool(n.plain("align_corners", False))
    if corners and "_aa" in name:  # PyTorch has the scale of corners and the places of halves there
        raise NotSupportedError("antialiased resizing with align_corners=True")
    given = n.plain("scale_factors")
    if not given:
        each = [n.plain(f"scales{end}") for end in ("_d", "_h", "_w", "")]
        given = [f for f in each if f is not None]
    # between corners the distance of results follows from the lengths, and a given scale is not read
    factors = (
        list(given)
        if len(given) == x.rank - 2 and not corners
        else [m / d for d, m in zip(x.shape[2:], shape[2:])]
    )
    plans = {i: (shape[i], float(f), (0.0, 1.0)) for i, f in enumerate(factors, 2)}
    exact = "exact" in name
    coordinates = "align_corners" if corners else "half_pixel" if mode != "nearest" or exact else "asymmetric"
    how = Interpolation(
        mode=_MODES[mode],
        coordinates=coordinates,
        rounding="round_prefer_ceil" if exact else "floor",
        antialias="_aa" in name,
        exclude_outside="_aa" in name,
    )
    return resized(x, plans, how)


def grid_sampled(n: TorchNode) -> GraphValue:
    """grid_sampler: its modes are numbers."""
    mode = ("linear", "nearest", "cubic")[n.plain("interpolation_mode")]
    padding = ("zeros", "border", "reflection")[n.plain("padding_mode")]
    return sampled(n["input"], n["grid"], mode, padding, bool(n.plain("align_corners")))


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
        "_upsample_nearest_exact2d upsample_linear1d upsample_bilinear2d upsample_trilinear3d "
        "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa".split(),
        upsampled,
    ),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), grid_sampled),
}
