"""Images rotated around their centre, with bilinear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core.errors import ArgumentError, DTypeError, RangeError, ShapeError
from ...ndarray import NDArray


def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Images rotated by `rotation_degrees`, with 0 outside. (C, H, W) or (N, C, H, W) of float32.

    Degrees: a number, or one for each of N images. `zoom_in`: enlarged until nothing from outside is visible;
    `zoom_out`: reduced until all of the image is.
    """
    if zoom_in and zoom_out:
        raise RangeError("imrotate can zoom in or out, not both.")
    if src.dtype is not np.float32:
        raise DTypeError(f"imrotate turns images of float32, got {np.dtype(src.dtype)}; astype converts.")
    if src.ndim == 3:
        if not isinstance(rotation_degrees, Number):
            raise ArgumentError("One image is turned by one number of degrees.")
        return imrotate(src.expand_dims(axis=0), rotation_degrees, zoom_in, zoom_out)[0]
    if src.ndim != 4:
        raise ShapeError(f"imrotate takes (C, H, W) or (N, C, H, W), got {src.shape}.")
    count, _, height, width = src.shape
    if isinstance(rotation_degrees, Number):
        degrees = np.full(count, rotation_degrees, np.float32)
    else:
        degrees = np.asarray(rotation_degrees, np.float32).reshape(-1)
    if len(degrees) != count:
        raise ShapeError(f"{count} images need as many rotation_degrees, got {len(degrees)}.")
    grid = _grid(np.deg2rad(degrees), height, width, zoom_in, zoom_out)
    return nd.BilinearSampler(src, nd.array(grid, ctx=src.context))


def _grid(angle: np.ndarray, height: int, width: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """(N, 2, H, W): the source position of each new pixel, -1 and 1 being the outermost pixels' centres."""
    angle = angle[:, None, None]
    half_h, half_w = (height - 1) / 2, (width - 1) / 2
    y = np.arange(height)[None, :, None] - half_h
    x = np.arange(width)[None, None, :] - half_w
    grid = np.stack(
        [
            (x * np.cos(angle) - y * np.sin(angle)) / half_w,
            (x * np.sin(angle) + y * np.cos(angle)) / half_h,
        ],
        axis=1,
    )
    if zoom_in or zoom_out:
        # How far the corners of the turned image reach, over how far those of the image do.
        cos, sin = np.abs(np.cos(angle)), np.abs(np.sin(angle))
        reach_x = (width * cos + height * sin) / width
        reach_y = (width * sin + height * cos) / height
        reach = np.maximum(reach_x, reach_y) if zoom_out else np.minimum(1 / reach_x, 1 / reach_y)
        grid *= reach[:, None]
    return grid.astype(np.float32)


def random_rotate(
    src: NDArray, angle_limits: Sequence[float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """`imrotate` by angles between two limits, one for each image, by numpy's global generator."""
    size = None if src.ndim == 3 else src.shape[0]
    low, high = angle_limits
    angles = np.random.uniform(low, high, size)  # noqa: NPY002  # MXNet's, so that its seed counts
    return imrotate(src, angles, zoom_in, zoom_out)
