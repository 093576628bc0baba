"""Images between their files' bytes and arrays of uint8, by Pillow (the extra `image`).

Pillow knows many formats; only formats that training images have are read, as some of the others run
programs of the system. An image's size is in its header; before it is decoded Pillow compares it with its
own limit (`PIL.Image.MAX_IMAGE_PIXELS`: a warning from there on, an error from twice as many, 179 million).
The file's size is no limit: an image of one colour can be thousands of times as large as its file. A pixel of
a colour image takes about 10 bytes while it is decoded: 4 of Pillow's, and 3 in each of two arrays.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ..core.errors import FormatError, nearest, OutOfMemoryError, RangeError

_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "GIF")
_UNCHANGED, _GRAY, _COLOR = -1, 0, 1


def pillow() -> Any:
    """The package `PIL.Image`; ImportError says what to install."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "Images are decoded by Pillow, which is not installed: pip install mxlite[image]"
        ) from None
    return Image


def decode(
    raw: bytes | bytearray | memoryview, flag: int = 1, bgr: bool = False, upright: bool = False
) -> np.ndarray:
    """The image in `raw`, the bytes of a file, as uint8. Alpha is dropped.

    flag 1: (H, W, 3), red green blue, or blue green red with `bgr`.  flag 0: gray, (H, W).
    flag -1: (H, W), (H, W, 3) or (H, W, 4), as the file has it, and as it lies there.
    `upright`: turned as EXIF says that the camera was held; MXNet does so in ImageRecordIter alone.
    FormatError if the bytes are no image, are damaged or hold too many pixels; OutOfMemoryError if the
    machine has no memory for the pixels.
    """
    Image = pillow()
    if flag not in (_UNCHANGED, _GRAY, _COLOR):
        raise RangeError(f"flag is 1 for colour, 0 for gray or -1 for what the file has, got {flag!r}.")
    width = height = 0
    try:
        with Image.open(io.BytesIO(raw), formats=_FORMATS) as image:
            width, height = image.size
            if flag == _GRAY and image.format == "JPEG":
                image.draft("L", image.size)  # the stored brightness, without decoding colours
            if upright:
                from PIL import ImageOps

                ImageOps.exif_transpose(image, in_place=True)
            pixels = np.array(_converted(image, flag))
        return _swapped(pixels) if bgr and pixels.ndim == 3 else pixels
    except Image.DecompressionBombError as error:
        raise FormatError(f"An image is too large: {error}") from None
    except MemoryError:
        raise OutOfMemoryError(
            f"There is no memory for an image of {width} x {height} pixels, which its file of {len(raw):,} "
            f"bytes says that it has. If that is right, store it smaller, or decode with fewer threads."
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds for bytes that make no sense
        begin = bytes(raw[:8])
        raise FormatError(
            f"{len(raw):,} bytes that begin with {begin!r} are no image that can be read: "
            f"{type(error).__name__}: {error}"
        ) from None


def _swapped(pixels: np.ndarray) -> np.ndarray:
    """The same array, its first and third channels exchanged."""
    red = pixels[..., 0].copy()
    pixels[..., 0] = pixels[..., 2]
    pixels[..., 2] = red
    return pixels


def _converted(image: Any, flag: int) -> Any:
    """The image in the mode that `flag` asks for."""
    if flag == _UNCHANGED:
        if image.mode in ("L", "RGB", "RGBA"):
            return image
        has_alpha = image.mode in ("LA", "PA") or "transparency" in image.info
        gray = image.mode in ("1", "I", "F", "I;16", "I;16B", "I;16L", "LA")
        return _in_mode(_eight_bits(image), "RGBA" if has_alpha else "L" if gray else "RGB")
    if flag == _GRAY and image.format == "PNG" and image.mode in ("RGB", "RGBA"):
        return _png_gray(np.asarray(image))
    return _in_mode(_eight_bits(image), "L" if flag == _GRAY else "RGB")


def _in_mode(image: Any, mode: str) -> Any:
    """The image in a mode: itself where that is its own, of which Pillow's `convert` would make a copy."""
    return image if image.mode == mode else image.convert(mode)


def _png_gray(pixels: np.ndarray) -> np.ndarray:
    """Brightness as libpng gives it to OpenCV: cut off, not rounded."""
    r, g, b = (pixels[..., i].astype(np.uint32) for i in range(3))
    return ((r * 9798 + g * 19235 + b * 3735) >> 15).astype(np.uint8)


def _eight_bits(image: Any) -> Any:
    """The upper 8 of 16 bits a pixel; Pillow's own conversion would clip at 255."""
    if not image.mode.startswith("I"):
        return image
    high = np.clip(np.asarray(image, np.int64) >> 8, 0, 255).astype(np.uint8)
    return pillow().fromarray(high)


def encode(pixels: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """The bytes of a JPEG or PNG. pixels: (H, W) or (H, W, 1, 3 or 4), blue green red, uint8."""
    Image = pillow()
    pixels = np.asarray(pixels)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or not pixels.size:
        raise FormatError(
            f"An image is (H, W) or (H, W, channels) of uint8, got {pixels.shape} of {pixels.dtype}."
        )
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 3:
        if pixels.shape[2] not in (3, 4):
            raise FormatError(f"An image has 1, 3 or 4 channels, got {pixels.shape[2]}.")
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
    kind = img_fmt.lower().lstrip(".")
    image = Image.fromarray(np.ascontiguousarray(pixels))
    file = io.BytesIO()
    if kind in ("jpg", "jpeg"):
        if image.mode == "RGBA":
            image = image.convert("RGB")
        if not 0 <= quality <= 100:
            raise RangeError(f"The quality of a JPEG is 0 to 100, got {quality}.")
        image.save(file, "JPEG", quality=quality, subsampling="4:2:0" if image.mode == "RGB" else -1)
    elif kind == "png":
        if not 0 <= quality <= 9:
            raise RangeError(
                f"For a PNG quality is how hard it is packed, 0 to 9, got {quality}; pass quality=3 or so."
            )
        image.save(file, "PNG", compress_level=quality)
    else:
        raise RangeError(
            f"img_fmt is '.jpg' or '.png', got {img_fmt!r}.{nearest(img_fmt, ('.jpg', '.png', '.jpeg'))}"
        )
    return file.getvalue()
