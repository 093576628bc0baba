"""Resize and Upsample."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.resizing import AxisPlan, COORDINATES, Interpolation, resized
from ...building.value import GraphValue
from ..node import OnnxNode


def resize(n: OnnxNode) -> GraphValue:
    """Scales or sizes, of all axes or of `axes`; before opset 11 as Upsample."""
    if n.version < 11:
        return upsample(n)
    x = n[0]
    axes = tuple(n.builder.axis(i, x.rank) for i in n.wholes("axes", None) or range(x.rank))
    scales, sizes = n.get(2), n.get(3)
    if scales is not None and scales.size:
        factors = [float(s) for s in n.array(2, "scales").tolist()]
        lengths = [_scaled(x.shape[i], s) for i, s in zip(axes, factors, strict=True)]
    elif sizes is not None:
        lengths = list(n.known_ints(3, "sizes") or ())
        factors = [m / max(x.shape[i], 1) for i, m in zip(axes, lengths, strict=True)]
        policy = n.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            lengths = [floor(factor * x.shape[i] + 0.5) for i in axes]
    else:
        raise FormatError("needs scales or sizes.")
    region = n.array(1, "roi").tolist() if n.get(1) is not None and n[1].size else [0.0, 1.0]
    half = len(region) // 2
    plans = {
        axis: (length, factor, (region[i % half], region[half + i % half]))
        for i, (axis, length, factor) in enumerate(zip(axes, lengths, factors))
    }
    return _resized(n, x, plans)


def upsample(n: OnnxNode) -> GraphValue:
    """The older operators: nearest takes the lower neighbour, linear starts at the first element."""
    x = n[0]
    if n.version < 7:
        factors = [1.0, 1.0, n.real("height_scale"), n.real("width_scale")]
    elif n.version < 9 and n.has("scales"):
        factors = list(n.reals("scales"))
    else:
        factors = [float(s) for s in n.array(1, "scales").tolist()]
    plans = {i: (_scaled(d, s), s, (0.0, 1.0)) for i, (d, s) in enumerate(zip(x.shape, factors, strict=True))}
    return _resized(n, x, plans, "asymmetric", "floor")


def _scaled(length: int, scale: float) -> int:
    """The scaled length, by the standard's own arithmetic: a float32 13 / 7 makes 13 of 7, and not 12."""
    return floor(np.float32(length) * np.float32(scale))


def _resized(
    n: OnnxNode,
    x: GraphValue,
    plans: dict[int, AxisPlan],
    coordinates: str | None = None,
    rounding: str | None = None,
) -> GraphValue:
    mode = n.choice("mode", "nearest", "linear", "cubic", "bilinear")
    how = Interpolation(
        mode="linear" if mode == "bilinear" else mode,
        coordinates=coordinates or n.choice("coordinate_transformation_mode", *COORDINATES),
        rounding=rounding
        or n.choice("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        cubic_a=n.real("cubic_coeff_a", -0.75),
        antialias=n.flag("antialias"),
        exclude_outside=n.flag("exclude_outside"),
        outside=n.real("extrapolation_value", 0.0),
    )
    return resized(x, plans, how)


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"Resize": resize, "Upsample": upsample}
