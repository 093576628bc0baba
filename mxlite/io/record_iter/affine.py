"""Affine maps of images: each new pixel is looked up at its source position."""

from __future__ import annotations

import numpy as np

from ..resample import NEAREST, weights_at

_STEPS = 32
"""Positions between pixels are rounded to 1/32, as OpenCV's are."""
_SINGULAR = 1e-12


def warp(
    image: np.ndarray, matrix: np.ndarray, shift: np.ndarray, width: int, height: int, method: int, fill: int
) -> np.ndarray:
    """(H, W, C) uint8 -> (height, width, C): the pixel at p comes to matrix @ p + shift.

    matrix: (2, 2), shift: (2,), of (x, y). What comes from outside is `fill`. `method` as in `resample`;
    area is bilinear here.
    """
    a, b, c, d = (float(v) for v in np.asarray(matrix, np.float64).ravel())
    determinant = a * d - b * c
    if abs(determinant) < _SINGULAR:
        return np.full((height, width, image.shape[2]), fill, np.uint8)
    x, y = np.meshgrid(np.arange(width) - shift[0], np.arange(height) - shift[1])
    from_x, from_y = (d * x - b * y) / determinant, (a * y - c * x) / determinant
    if method == NEAREST:
        return _looked_up(image, np.rint(from_y).astype(np.intp), np.rint(from_x).astype(np.intp), fill)
    from_x, from_y = np.rint(from_x * _STEPS) / _STEPS, np.rint(from_y * _STEPS) / _STEPS
    first_x, first_y = np.floor(from_x).astype(np.intp), np.floor(from_y).astype(np.intp)
    weights_x = weights_at(from_x - first_x, method)
    weights_y = weights_at(from_y - first_y, method)
    before = len(weights_x) // 2 - 1
    total = np.zeros((height, width, image.shape[2]), np.float32)
    for j, wy in enumerate(weights_y):
        for i, wx in enumerate(weights_x):
            pixels = _looked_up(image, first_y + (j - before), first_x + (i - before), fill)
            total += pixels * (wy * wx).astype(np.float32)[..., None]
    return np.clip(np.rint(total), 0, 255).astype(np.uint8)


def _looked_up(image: np.ndarray, y: np.ndarray, x: np.ndarray, fill: int) -> np.ndarray:
    height, width = image.shape[:2]
    pixels = image[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    pixels[(y < 0) | (y >= height) | (x < 0) | (x >= width)] = fill
    return pixels
