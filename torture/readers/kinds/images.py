"""Readers of images, and of lists that name them."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

import mxlite as mx
from torture.readers.kinds.reader import Reader
from torture.readers.mutate import harmed


@cache
def image_files() -> list[bytes]:
    from PIL import Image

    made = []
    pixels = np.random.default_rng(0).integers(0, 255, (9, 11, 4), np.uint8)
    import io

    for mode, form in (
        ("RGB", "JPEG"),
        ("L", "JPEG"),
        ("RGB", "PNG"),
        ("RGBA", "PNG"),
        ("P", "PNG"),
        ("L", "PNG"),
    ):
        buffer = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(buffer, form)
        made.append(buffer.getvalue())
    for mode, form in (("RGB", "GIF"), ("RGB", "BMP"), ("RGB", "TIFF"), ("RGB", "WEBP")):
        buffer = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(buffer, form)
        made.append(buffer.getvalue())
    return made


def _harmed_image(data: bytes, random: Random, files: list[bytes]) -> bytes:
    """A corrupted PNG, mostly with correct checksums of its chunks."""
    made = harmed(data, random, files)
    if not made.startswith(b"\x89PNG") or random.random() < 0.2:
        return made
    out, at = made[:8], 8
    while at + 8 <= len(made):
        (size,) = struct.unpack_from(">I", made, at)
        body = made[at + 4 : at + 8 + size]
        out += struct.pack(">I", size) + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + size
    return out + made[at:]


def _use_image(data: bytes, folder: Path) -> None:
    path = folder / "image"
    path.write_bytes(data)
    mx.image.imdecode(data, flag=len(data) % 2).asnumpy()
    mx.image.imread(str(path)).asnumpy()
    mx.recordio.unpack_img(mx.recordio.pack((0, 1.0, 0, 0), data))


def _use_list(data: bytes, folder: Path) -> None:
    path, image = folder / "a.lst", folder / "image.png"
    path.write_bytes(data)
    if not image.exists():
        image.write_bytes(image_files()[2])
    make = mx.image.ImageDetIter if b"\t5\t" in data else mx.image.ImageIter
    for i, batch in enumerate(make(2, (3, 8, 8), path_imglist=str(path), path_root=str(folder))):
        batch.data[0].asnumpy()
        if i == 5:
            break


_LISTS = [
    b"0\t1.0\timage.png\n1\t2.0\timage.png\n7\t-1\timage.png\n",
    b"0\t2\t5\t0\t0.1\t0.1\t0.5\t0.6\timage.png\n1\t2\t5\t0\t0.2\t0.3\t0.5\t0.6\timage.png\n",
]


READERS = (
    Reader("image", image_files, _use_image, _harmed_image),
    Reader("image_list", lambda: _LISTS, _use_list, refusals=(mx.MXLiteError, FileNotFoundError)),
)
