"""Crops of images. Sizes are (width, height), positions (x, y) from the upper left corner, as in MXNet."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import ArgumentError, RangeError, ShapeError
from ...ndarray import from_numpy, NDArray
from .reading import given
from .resize import imresize, interpolation

Size = tuple[int, int]
Place = tuple[int, int, int, int]
"""x, y, width, height."""


def scale_down(src_size: Size, size: Size) -> Size:
    """`size` made smaller, in proportion, until it fits into `src_size`; both (width, height)."""
    w, h = float(size[0]), float(size[1])
    sw, sh = src_size
    if sh < h:
        w, h = w * sh / h, float(sh)
    if sw < w:
        w, h = float(sw), h * sw / w
    return int(w), int(h)


def fixed_crop(
    src: NDArray, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = 2
) -> NDArray:
    """The part of w x h at (x0, y0), resized to `size` if that is given and another."""
    out = src[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != tuple(size):
        out = imresize(out, size[0], size[1], interpolation(interp, (h, w, size[1], size[0])))
    return out


def random_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, Place]:
    """A part of `size` at a random position, and the position. A smaller image gives its largest part of that
    aspect ratio, resized.
    """
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    x0 = random.randint(0, w - new_w)
    y0 = random.randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, Place]:
    """The part of `size` in the middle, and its position. A smaller image gives its largest part of that
    aspect ratio, resized.
    """
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = (w - new_w) // 2, (h - new_h) // 2
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


_TRIES = 10


def random_size_crop(
    src: NDArray,
    size: Size,
    area: float | Sequence[float],
    ratio: Sequence[float],
    interp: int = 2,
    **kwargs: Any,
) -> tuple[NDArray, Place]:
    """A part at a random position, of random area and aspect ratio, resized to `size`; and its position.

    area: share of the image, (least, most) or least alone.  ratio: (least, most) width over height, even in
    its logarithm. After ten parts that did not fit, the middle. `min_area` is an older name of `area`.
    """
    if "min_area" in kwargs:
        warnings.warn("min_area is deprecated: write area.", DeprecationWarning, stacklevel=2)
        area = kwargs.pop("min_area")
    if kwargs:
        raise ArgumentError(f"random_size_crop has no parameter {next(iter(kwargs))!r}.")
    h, w, _ = src.shape
    least, most = (area, 1.0) if isinstance(area, (int, float)) else area
    for _ in range(_TRIES):
        wanted = random.uniform(least, most) * (h * w)
        form = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(wanted * form)), round(math.sqrt(wanted / form))
        if new_w <= w and new_h <= h:
            x0 = random.randint(0, w - new_w)
            y0 = random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


_BORDERS = {0: "constant", 1: "edge", 2: "symmetric", 3: "wrap", 4: "reflect"}


def copyMakeBorder(
    src: NDArray,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Sequence[float] = (),
    out: NDArray | None = None,
) -> NDArray:
    """The image with a border. (H, W, C) -> (top + H + bot, left + W + right, C).

    `type`: 0 filled with `values`, one for each channel, or `value` for all; 1 the edge repeated, 2 mirrored
    with its edge (fedcba|abcdef), 3 from the other side, 4 mirrored without it (gfedcb|abcdefg).
    """
    if type not in _BORDERS:
        raise RangeError(f"type is one of {sorted(_BORDERS)}, got {type!r}.")
    pixels = src.asnumpy()
    if pixels.ndim != 3:
        raise ShapeError(f"An image is (H, W, C), got {pixels.shape}.")
    width = ((top, bot), (left, right), (0, 0))
    if type:
        framed = np.pad(pixels, width, _BORDERS[type])  # type: ignore[call-overload]
    else:
        channels = pixels.shape[2]
        color = list(values) if len(values) else [value] * channels
        if len(color) < channels:
            raise ShapeError(f"values needs one number for each of {channels} channels, got {len(color)}.")
        shape = (top + pixels.shape[0] + bot, left + pixels.shape[1] + right, channels)
        framed = np.empty(shape, pixels.dtype)
        framed[:] = np.asarray(color[:channels]).astype(pixels.dtype)
        framed[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return given(from_numpy(np.ascontiguousarray(framed)), out)
