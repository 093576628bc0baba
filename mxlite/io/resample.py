"""Resizing of images by the rules of OpenCV, which MXNet resizes with.

Each method is a sum over a few pixels of each axis ("taps"), first along one axis, then along the other.
Pixel i covers [i, i + 1) and its centre is i + 0.5; a new pixel x of n lies at (x + 0.5) * old / n - 0.5 in
the old image. Pixels beyond the border are those on it.

| number | way      | taps an axis                                                                       |
|--------|----------|------------------------------------------------------------------------------------|
| 0      | nearest  | 1: pixel floor(x * old / n)                                                        |
| 1      | bilinear | 2, also when the image shrinks: pixels between are not looked at                   |
| 2      | bicubic  | 4, Keys' kernel with a = -0.75                                                     |
| 3      | area     | shrinking: all that the new pixel covers, by their share; growing: 2               |
| 4      | Lanczos  | 8, windowed by sinc(t / 4), then scaled to a sum of 1                              |

R. Keys, Cubic convolution interpolation for digital image processing, IEEE Trans. ASSP 29 (1981). Sums are
made in float32 and rounded to the nearest, bilinear ones of bytes in whole numbers as in OpenCV. Bicubic and
Lanczos ones of bytes differ from OpenCV's by 1 here and there.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ..core.device import host_memory
from ..core.errors import OutOfMemoryError, ShapeError

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)
Taps = tuple[np.ndarray, np.ndarray]
METHODS = (NEAREST, LINEAR, CUBIC, AREA, LANCZOS)


def resample(pixels: np.ndarray, width: int, height: int, method: int) -> np.ndarray:
    """(H, W) or (H, W, C) -> (height, width[, C]) of the same dtype. `method`: one of METHODS.

    OutOfMemoryError if the machine has no memory for that: a line of pixels whose shorter side is to become
    longer grows by the square of it.
    """
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise ShapeError(f"An image is (H, W) or (H, W, C) and not empty, got {pixels.shape}.")
    if width < 1 or height < 1:
        raise ShapeError(f"An image cannot be resized to {width} x {height}.")
    old_height, old_width = pixels.shape[:2]
    try:
        if width * height * math.prod(pixels.shape[2:]) > host_memory():
            raise MemoryError
        return _resampled(pixels, width, height, method)
    except MemoryError:
        raise OutOfMemoryError(
            f"There is no memory to resize an image of {old_width} x {old_height} pixels to "
            f"{width} x {height}."
        ) from None


def _resampled(pixels: np.ndarray, width: int, height: int, method: int) -> np.ndarray:
    old_height, old_width = pixels.shape[:2]
    if (old_height, old_width) == (height, width):
        return pixels.copy()
    if method == AREA and (width > old_width or height > old_height):
        method = _GROWING_AREA
    rows, columns = taps(old_height, height, method), taps(old_width, width, method)
    if method == NEAREST:
        return pixels.take(rows[0][0], 0).take(columns[0][0], 1)
    if pixels.dtype == np.uint8:
        if method in (LINEAR, AREA) and (old_height, old_width) == (2 * height, 2 * width):
            return _halved(pixels)
        if method in (LINEAR, _GROWING_AREA):
            return _bilinear_bytes(pixels, rows, columns)
    work = pixels.astype(np.float64 if pixels.dtype.itemsize > 4 else np.float32, copy=False)
    # The axis that shrinks most goes first, so that the other one has less to do.
    steps = [(0, rows), (1, columns)]
    if width * old_height < height * old_width:
        steps.reverse()
    for axis, (indices, weights) in steps:
        work = _along(work, axis, indices, weights)
    return _cast(work, pixels.dtype)


_UNIT = 2048
"""Weights of bilinear sums of bytes are whole multiples of 1 / 2048, as OpenCV's."""


def _bilinear_bytes(pixels: np.ndarray, rows: Taps, columns: Taps) -> np.ndarray:
    """OpenCV's sums to the bit: they lose four bits, then 16, then two."""
    shape = [1] * (pixels.ndim - 2)
    (left, right), (a, b) = columns[0], np.rint(columns[1] * _UNIT).astype(np.int32)
    wide = pixels.astype(np.int32)
    wide = wide.take(left, 1) * a.reshape(-1, *shape) + wide.take(right, 1) * b.reshape(-1, *shape)
    wide >>= 4
    (upper, lower), (a, b) = rows[0], np.rint(rows[1] * _UNIT).astype(np.int32)
    high, low = wide.take(upper, 0), wide.take(lower, 0)
    high *= a.reshape(-1, 1, *shape)
    low *= b.reshape(-1, 1, *shape)
    high >>= 16
    low >>= 16
    high += low
    high += 2
    high >>= 2
    return high.astype(np.uint8)


def _halved(pixels: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 bytes, halves rounded up, as OpenCV's."""
    wide = pixels.astype(np.uint16)
    total = wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2] + np.uint16(2)
    return (total >> 2).astype(np.uint8)


def _along(work: np.ndarray, axis: int, indices: np.ndarray, weights: np.ndarray) -> np.ndarray:
    shape = [1] * work.ndim
    shape[axis] = -1
    total = None
    for index, weight in zip(indices, weights):
        part = work.take(index, axis)
        part *= weight.reshape(shape).astype(work.dtype)
        if total is None:
            total = part
        else:
            total += part
    assert total is not None
    return total


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind not in "iu":
        return values.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


_GROWING_AREA = 5


@functools.lru_cache(256)
def taps(old: int, new: int, method: int) -> Taps:
    """Taps of each new pixel of an axis: indices and weights, both (taps, new)."""
    scale = old / new
    x = np.arange(new)
    if method == NEAREST:
        return np.minimum(np.floor(x * scale).astype(np.intp), old - 1)[None], np.ones((1, new))
    if method == AREA:
        return _covered(old, new)
    if method == _GROWING_AREA:
        first = np.floor(x * scale).astype(np.intp)
        share = (x + 1) - (first + 1) / scale
        share = np.where(share <= 0, 0.0, share - np.floor(share))
        return _clamped(first, np.array([1 - share, share]), 0, old)
    at = ((x + 0.5) * scale - 0.5).astype(np.float32)  # as OpenCV rounds it
    first = np.floor(at).astype(np.intp)
    weights = weights_at(at - first, method)
    return _clamped(first, weights, len(weights) // 2 - 1, old)


def weights_at(t: np.ndarray, method: int) -> np.ndarray:
    """(taps, ...): weights of the pixels around a position `t` in [0, 1) after a pixel.

    Half of the taps are at and before that pixel, half after it. Area is bilinear here.
    """
    if method == CUBIC:
        return _keys(t)
    return _lanczos(t) if method == LANCZOS else np.array([1 - t, t])


def _clamped(first: np.ndarray, weights: np.ndarray, before: int, old: int) -> Taps:
    steps = np.arange(len(weights))[:, None] - before
    return np.clip(first + steps, 0, old - 1), weights


def _keys(t: np.ndarray) -> np.ndarray:
    a = -0.75

    def near(d: np.ndarray) -> np.ndarray:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: np.ndarray) -> np.ndarray:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return np.array([far(t + 1), near(t), near(1 - t), far(2 - t)])


def _lanczos(t: np.ndarray) -> np.ndarray:
    distance = t + 3 - np.arange(8).reshape(-1, *[1] * t.ndim)
    weights = np.sinc(distance) * np.sinc(distance / 4)
    return weights / weights.sum(axis=0)


def _covered(old: int, new: int) -> Taps:
    """Pixels that [x * scale, (x + 1) * scale) covers, weighted by their shares of it."""
    scale = old / new
    begin = np.arange(new) * scale
    end = np.minimum(begin + scale, old)
    first = np.floor(begin + 1e-9).astype(np.intp)
    count = int(np.ceil(scale)) + 1
    index = first + np.arange(count)[:, None]
    share = np.minimum(index + 1, end) - np.maximum(index, begin)
    share = np.maximum(share, 0.0)
    return np.minimum(index, old - 1), share / share.sum(axis=0)
