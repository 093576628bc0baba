"""A record with a label: a header, perhaps more labels, then any bytes, mostly an encoded image.

    u32 flag | f32 label | u64 id | u64 id2 | flag float32 labels | bytes                 little-endian

With a `flag` above 0 the label is the array of that many numbers, and the field `label` counts for nothing.
"""

from __future__ import annotations

import numbers
import struct
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import ArgumentError, FormatError
from ...core.wanted import found, wanted
from ..image_codec import decode, encode

_HEAD = struct.Struct("<IfQQ")


class IRHeader(NamedTuple):
    """The header of a record: number of labels in an array (0: one label), label(s), and two numbers to know
    it by.
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: IRHeader | tuple[Any, ...], s: bytes) -> bytes:
    """Header and bytes in one. A label that is no number is an array: `flag` becomes its length."""
    try:
        head = IRHeader(*header)
    except TypeError:
        raise ArgumentError(f"pack: header must be (flag, label, id, id2), got {found(header)}.") from None
    if isinstance(head.label, numbers.Number):
        return _HEAD.pack(0, head.label, head.id, head.id2) + bytes(s)
    labels = np.asarray(head.label, dtype="<f4")
    return _HEAD.pack(labels.size, 0.0, head.id, head.id2) + labels.tobytes() + bytes(s)


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Header and bytes of a record; its label is a float, or a float32 array if there are several."""
    wanted("unpack: s", s, "the bytes of a record", bytes, bytearray, memoryview)
    if len(s) < _HEAD.size:
        raise FormatError(f"A record with a label has at least {_HEAD.size} bytes, this one {len(s)}.")
    head = IRHeader(*_HEAD.unpack_from(s))
    if not head.flag:
        return head, s[_HEAD.size :]
    end = _HEAD.size + 4 * head.flag
    if end > len(s):
        raise FormatError(
            f"A record says that it has {head.flag:,} labels, {4 * head.flag:,} bytes; only "
            f"{len(s) - _HEAD.size:,} follow its head."
        )
    labels = np.frombuffer(s, "<f4", head.flag, _HEAD.size).astype(np.float32)
    return head._replace(label=labels), s[end:]


def pack_img(
    header: IRHeader | tuple[Any, ...], img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg"
) -> bytes:
    """Header and image in one. img: (H, W) gray, (H, W, 3) blue green red or (H, W, 4), uint8, as in OpenCV.

    `quality`: of a JPEG 1 to 100, of a PNG how hard it is packed, 0 to 9.
    """
    return pack(header, encode(img, quality, img_fmt))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """Header and image of a record, as OpenCV gives it: blue, green, red.

    `iscolor`: 1 for (H, W, 3), 0 for gray (H, W), -1 for what is in the file: gray, colour or with alpha.
    """
    header, raw = unpack(s)
    return header, decode(raw, iscolor, bgr=True)
