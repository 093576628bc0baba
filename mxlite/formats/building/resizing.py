"""Interpolation along axes.

It is linear in the data and works along each axis for itself, so along each axis it is a matrix.
mxlite's own `resize` is used if it knows the mode; the matrices serve antialiasing and cropping.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from ...core import FormatError
from .matrices import along_axis
from .value import GraphValue

AxisPlan = tuple[int, float, tuple[float, float]]
"""The plan of one axis: the length of the result, the scale, and the region of the data in [0, 1]."""

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip


class Interpolation(NamedTuple):
    """How a result's elements are computed, in the words of ONNX's Resize."""

    mode: str = "nearest"  # or linear, cubic
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"  # of mode nearest
    cubic_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    outside: float = 0.0  # the value outside of the data, of tf_crop_and_resize


def resized(x: GraphValue, plans: dict[int, AxisPlan], how: Interpolation) -> GraphValue:
    """`x` with the axes of `plans` at their new lengths."""
    b, coordinates = x.builder, how.coordinates
    plans = {
        i: p for i, p in plans.items() if p[0] != x.shape[i] or p[1] != 1 or coordinates.startswith("tf_crop")
    }
    if any(length < 1 for length, _, _ in plans.values()):
        raise FormatError(f"lengths {[p[0] for p in plans.values()]} must be at least 1.")
    known = coordinates not in ("tf_half_pixel_for_nn", "tf_crop_and_resize") and not how.antialias
    if coordinates == "align_corners":  # the operator counts from whole lengths, the standard from real ones
        known = known and all(x.shape[i] * factor == length for i, (length, factor, _) in plans.items())
    if known and plans and x.array is None:
        result: GraphValue = b.op(
            "resize",
            x,
            axes=tuple(plans),
            scales=tuple(factor for _, factor, _ in plans.values()),
            mode=how.mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode=how.rounding,
            cubic_coeff_a=how.cubic_a,
            exclude_outside=how.exclude_outside,
        )
        if all(result.shape[i] == length for i, (length, _, _) in plans.items()):
            return result
    holes: list[tuple[int, np.ndarray]] = []
    for axis, (length, factor, region) in plans.items():
        count = x.shape[axis]
        places = _places(coordinates, np.arange(length), count, length, factor, region)
        if coordinates == "tf_crop_and_resize":
            holes.append((axis, (places < 0) | (places > count - 1)))
        if how.mode == "nearest":
            index = np.clip(_rounded(places, how.rounding), 0, count - 1)
            x = b.op("take", x, b.constant(index, np.int64), axis=axis)
        else:
            scale = factor if how.antialias else 1.0
            weights = _weights(places, count, how.mode, how.cubic_a, scale, how.exclude_outside)
            x = along_axis(x, axis, weights)
    for axis, hole in holes:
        if hole.any():
            mask = b.constant(hole.reshape(-1, *(1,) * (x.rank - 1 - axis)))
            x = b.where(mask, b.full((), how.outside, x.dtype), x)
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
