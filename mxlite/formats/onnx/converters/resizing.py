"""Resize and Upsample.

Interpolation is linear in the data and works along each axis for itself, so along each axis it is a matrix.
mxlite's own `resize` is used if it knows the mode; the matrices serve antialiasing and cropping.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor
from typing import Any

import numpy as np

from ....core import FormatError
from ..node import OnnxNode
from ..value import OnnxValue
from .linear import along_axis

_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip


def resize(n: OnnxNode) -> OnnxValue:
    """Scales or sizes, of all axes or of `axes`; before opset 11 as Upsample."""
    if n.version < 11:
        return upsample(n)
    x = n[0]
    axes = tuple(n.builder.axis(i, x.rank) for i in n.wholes("axes", None) or range(x.rank))
    scales, sizes = n.get(2), n.get(3)
    if scales is not None and scales.size:
        factors = [float(s) for s in n.array(2, "scales").tolist()]
        lengths = [floor(x.shape[i] * s) for i, s in zip(axes, factors, strict=True)]
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


def upsample(n: OnnxNode) -> OnnxValue:
    """The older operators: nearest takes the lower neighbour, linear starts at the first element."""
    x = n[0]
    if n.version < 9 and n.has("scales"):
        factors = list(n.reals("scales"))
    else:
        factors = [float(s) for s in n.array(1, "scales").tolist()]
    plans = {i: (floor(d * s), s, (0.0, 1.0)) for i, (d, s) in enumerate(zip(x.shape, factors, strict=True))}
    return _resized(n, x, plans, "asymmetric", "floor")


def _resized(
    n: OnnxNode,
    x: OnnxValue,
    plans: dict[int, tuple[int, float, tuple[float, float]]],
    coordinates: str | None = None,
    rounding: str | None = None,
) -> OnnxValue:
    b = n.builder
    mode = n.choice("mode", "nearest", "linear", "cubic", "bilinear")
    mode = "linear" if mode == "bilinear" else mode
    coordinates = coordinates or n.choice("coordinate_transformation_mode", *_COORDINATES)
    rounding = rounding or n.choice(
        "nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"
    )
    antialias, outside = n.flag("antialias"), n.flag("exclude_outside")
    a = n.real("cubic_coeff_a", -0.75)
    plans = {
        i: p for i, p in plans.items() if p[0] != x.shape[i] or p[1] != 1 or coordinates.startswith("tf_crop")
    }
    if any(length < 1 for length, _, _ in plans.values()):
        raise FormatError(f"lengths {[p[0] for p in plans.values()]} must be at least 1.")
    known = coordinates not in ("tf_half_pixel_for_nn", "tf_crop_and_resize") and not antialias
    if coordinates == "align_corners":  # the operator counts from whole lengths, the standard from real ones
        known = known and all(x.shape[i] * factor == length for i, (length, factor, _) in plans.items())
    if known and plans and x.array is None:
        result: OnnxValue = b.op(
            "resize",
            x,
            axes=tuple(plans),
            scales=tuple(factor for _, factor, _ in plans.values()),
            mode=mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode=rounding,
            cubic_coeff_a=a,
            exclude_outside=outside,
        )
        if all(result.shape[i] == length for i, (length, _, _) in plans.items()):
            return result
    holes: list[tuple[int, np.ndarray]] = []
    for axis, (length, factor, region) in plans.items():
        count = x.shape[axis]
        places = _places(coordinates, np.arange(length), count, length, factor, region)
        if coordinates == "tf_crop_and_resize":
            holes.append((axis, (places < 0) | (places > count - 1)))
        if mode == "nearest":
            index = np.clip(_rounded(places, rounding), 0, count - 1)
            x = b.op("take", x, b.constant(index, np.int64), axis=axis)
        else:
            weights = _weights(places, count, mode, a, factor if antialias else 1.0, outside)
            x = along_axis(x, axis, weights)
    for axis, hole in holes:
        if hole.any():
            mask = b.constant(hole.reshape(-1, *(1,) * (x.rank - 1 - axis)))
            x = b.where(mask, b.full((), n.real("extrapolation_value", 0.0), x.dtype), x)
    return x


def _places(
    mode: str, o: np.ndarray, size: int, length: int, scale: float, region: tuple[float, float]
) -> np.ndarray:
    """Coordinates in the data of the elements `o` of the result."""
    real = scale * size  # the length before it was cut to a whole number
    if mode == "align_corners":
        return o * (size - 1) / (real - 1) if real != 1 else o * 0.0
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = region
        if length == 1:
            return np.full(o.shape, 0.5 * (start + end) * (size - 1))
        return start * (size - 1) + o * (end - start) * (size - 1) / (length - 1)
    places = (o + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel" and length == 1:
        return places * 0 - 0.5
    if mode == "half_pixel_symmetric":
        places = places + size / 2 * (1 - length / real)
    return places


def _rounded(places: np.ndarray, mode: str) -> np.ndarray:
    if mode == "floor":
        return np.floor(places)
    if mode == "ceil":
        return np.ceil(places)
    return np.ceil(places - 0.5) if mode == "round_prefer_floor" else np.floor(places + 0.5)


def _weights(
    places: np.ndarray, size: int, mode: str, a: float, scale: float, exclude_outside: bool
) -> np.ndarray:
    """The matrix (results, data) of linear or cubic interpolation; below scale 1 the kernel is stretched."""
    scale = min(scale, 1.0)
    reach = ceil((1 if mode == "linear" else 2) / scale)
    first = np.floor(places).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(first - places[:, None]) * scale
    if mode == "linear":
        weight = np.clip(1 - distance, 0, 1)
    else:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weight = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    if exclude_outside:
        weight = np.where((first >= 0) & (first < size), weight, 0)
    if exclude_outside or scale < 1:
        weight = weight / weight.sum(1, keepdims=True)
    matrix = np.zeros((len(places), size))
    np.add.at(matrix, (np.arange(len(places))[:, None], np.clip(first, 0, size - 1)), weight)
    return matrix


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"Resize": resize, "Upsample": upsample}
