"""Images from files and from bytes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...core.disk.files import opened
from ...core.errors import ArgumentError, ShapeError
from ...ndarray import from_numpy, NDArray
from ..image_codec import decode


def imread(
    filename: str | os.PathLike[str], flag: int = 1, to_rgb: bool = True, out: NDArray | None = None
) -> NDArray:
    """The image in a file; see `imdecode`."""
    with opened(filename) as file:
        return imdecode(file.read(), flag, to_rgb, out)


def imdecode(
    buf: bytes | bytearray | memoryview | np.ndarray | NDArray,
    flag: int = 1,
    to_rgb: bool = True,
    out: NDArray | None = None,
) -> NDArray:
    """The image in the bytes of a file: (H, W, 3) of uint8, with flag 0 gray (H, W, 1).

    Colours are red, green, blue; blue, green, red without `to_rgb`. `out` takes the result if it is given.
    FormatError if the bytes are no image; ImportError if Pillow is missing.
    """
    if isinstance(buf, str):
        raise ArgumentError("imdecode takes bytes, got str: open the file with 'rb', or use imread.")
    raw: Any = buf
    if isinstance(buf, NDArray):
        raw = buf.asnumpy()
    if isinstance(raw, np.ndarray):
        raw = raw.astype(np.uint8, copy=False).tobytes()
    pixels = decode(raw, flag, bgr=not to_rgb)
    return given(from_numpy(pixels[..., None] if pixels.ndim == 2 else pixels), out)


def given(result: NDArray, out: NDArray | None) -> NDArray:
    """`result`, or `out` with its values."""
    if out is None:
        return result
    if out.shape != result.shape:
        raise ShapeError(f"out must be of shape {result.shape}, but it is {out.shape}.")
    return result.copyto(out)
