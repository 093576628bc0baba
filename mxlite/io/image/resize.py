"""Images of other sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...core.errors import OpAttributeError, ShapeError
from ...ndarray import from_numpy, NDArray
from ..resample import AREA, CUBIC, LINEAR, METHODS, resample
from .reading import given

_AUTO, _RANDOM = 9, 10


def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """An image of w x h pixels. src: (H, W, C) -> (h, w, C), same dtype.

    `interp`: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 bicubic to grow, area to shrink and
    bilinear else, 10 one of the first five by chance; by OpenCV's rules (`resample.py`).
    """
    if src.ndim != 3:
        raise ShapeError(f"An image is (H, W, C), got {src.shape}.")
    method = interpolation(interp, (src.shape[0], src.shape[1], h, w))
    return given(from_numpy(resample(src.asnumpy(), int(w), int(h), method)), out)


def interpolation(interp: int, sizes: Sequence[int] = ()) -> int:
    """One of the five methods for `interp`. sizes: old height, old width, new height, new width."""
    if interp == _AUTO:
        if not sizes:
            return CUBIC
        old_h, old_w, new_h, new_w = sizes
        if new_h > old_h and new_w > old_w:
            return CUBIC
        return AREA if new_h < old_h and new_w < old_w else LINEAR
    if interp == _RANDOM:
        return random.randint(0, 4)
    if interp not in METHODS:
        raise OpAttributeError(f"parameter 'interp' is 0 to 4, 9 or 10, got {interp!r}.")
    return interp


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """The image with its shorter side `size` long, the other in proportion (rounded down)."""
    h, w, _ = src.shape
    new_w, new_h = (size, size * h // w) if h > w else (size * w // h, size)
    return imresize(src, new_w, new_h, interpolation(interp, (h, w, new_h, new_w)))
