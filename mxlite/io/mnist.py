"""MNIST's file format, and an iterator over it.

    u8 0 | u8 0 | u8 type | u8 number of axes | u32 size of each axis | elements         big-endian

Only bytes (type 8) are read: that is what images and labels are. A file may be compressed with gzip. Sizes in
the file are compared with the bytes that are there before anything of that size is allocated.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from ..core.disk.files import opened
from ..core.errors import FormatError, RangeError, ShapeError
from ..core.log import Log
from ..core.wanted import wanted_path
from ..ndarray import NDArray
from .iterator import DataBatch
from .ndarray_iter import NDArrayIter

_log = Log(__name__)

_MAX_AXES = 8
_DEFLATE_RATIO = 1032  # no deflate stream grows by more


def read_idx(path: str | os.PathLike[str], axes: int | None = None) -> np.ndarray:
    """The array of bytes in an idx file, plain or gzip, told apart by their first bytes.

    `axes`: how many there must be. FormatError says what is wrong; MissingFileError if there is no file.
    """
    name = wanted_path("The file to read", path)
    with opened(name) as file:
        nbytes = os.fstat(file.fileno()).st_size
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return _read(name, file, nbytes, axes)
        try:
            with gzip.GzipFile(fileobj=file) as plain:
                return _read(name, plain, nbytes * _DEFLATE_RATIO, axes)  # type: ignore[arg-type]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(f"{name}: the gzip data is cut off or corrupt ({error}).") from None


def _read(name: str, file: BinaryIO, most: int, axes: int | None) -> np.ndarray:
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0":
        raise FormatError(f"{name} is not an idx file: it begins with {head!r}, not with two zero bytes.")
    kind, count = head[2], head[3]
    if kind != 8:
        raise FormatError(f"{name}: elements of type 0x{kind:02X}; only bytes (0x08) are read.")
    if not 1 <= count <= _MAX_AXES or (axes is not None and count != axes):
        raise FormatError(f"{name} has {count} axes, {axes or f'1 to {_MAX_AXES}'} were expected.")
    sizes = file.read(4 * count)
    if len(sizes) < 4 * count:
        raise FormatError(f"{name} is cut off inside its head of {4 + 4 * count} bytes.")
    shape = struct.unpack(f">{count}I", sizes)
    wanted = math.prod(shape)
    if wanted > most:
        raise FormatError(f"{name} should hold {wanted} bytes of shape {shape}, but is too short for that.")
    data = file.read(wanted)
    if len(data) < wanted:
        raise FormatError(f"{name} is cut off: {len(data)} of {wanted} bytes of shape {shape} are there.")
    if file.read(1):
        raise FormatError(f"{name} goes on after its {wanted} bytes of shape {shape}.")
    return np.frombuffer(data, np.uint8).reshape(shape)


class MNISTIter(NDArrayIter):
    """Batches of MNIST.

    data: (N, 1, H, W), or (N, H*W) if `flat`, in [0, 1): pixels over 256;  softmax_label: (N,).

    `shuffle` permutes once, by `seed` (not in MXNet's order); every epoch is alike. A part out of
    `num_parts` is the rows [n * part_index // num_parts, n * (part_index + 1) // num_parts). Samples that do
    not fill a batch are left out. `silent`: do not log how many images were read. `data_shape` or
    `input_shape`, that of one image, is what old programs give; it must have as many pixels.
    `prefetch_buffer` and `ctx` are accepted for MXNet's sake.
    """

    def __init__(
        self,
        image: str | os.PathLike[str] = "./train-images-idx3-ubyte",
        label: str | os.PathLike[str] = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        data_name: str = "data",
        label_name: str = "softmax_label",
        input_shape: Sequence[int] | None = None,
        prefetch_buffer: int = 4,
        ctx: str = "gpu",
        data_shape: Sequence[int] | None = None,
    ) -> None:
        if not 0 <= part_index < num_parts:
            raise RangeError(f"part_index is in [0, num_parts) = [0, {num_parts}), got {part_index}.")
        images, labels = read_idx(image, axes=3), read_idx(label, axes=1)
        if len(images) != len(labels):
            raise FormatError(
                f"{len(images)} images in {os.fspath(image)}, but {len(labels)} labels in {os.fspath(label)}."
            )
        for name, shape in (("input_shape", input_shape), ("data_shape", data_shape)):
            if shape is not None and math.prod(shape) != math.prod(images.shape[1:]):
                raise ShapeError(
                    f"{name} is {tuple(shape)}, but the images of {os.fspath(image)} are {images.shape[1:]}."
                )
        count = len(images)
        rows = np.arange(count)
        if shuffle:
            np.random.RandomState(seed).shuffle(rows)
        rows = rows[count * part_index // num_parts : count * (part_index + 1) // num_parts]
        if len(rows) < batch_size:
            raise ShapeError(
                f"Part {part_index} of {num_parts} has {len(rows)} of {count} images, "
                f"fewer than batch_size {batch_size}."
            )
        scaled = images[rows].astype(np.float32) * np.float32(1 / 256)
        super().__init__(
            scaled.reshape(len(rows), -1) if flat else scaled[:, None],
            labels[rows].astype(np.float32),
            batch_size,
            last_batch_handle="discard",
            data_name=data_name,
            label_name=label_name,
        )
        if not silent:
            _log.info("MNISTIter: %d images of %dx%d", len(rows), *images.shape[1:])

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad())

    def getdata(self) -> NDArray:  # type: ignore[override]  # an array as MXNet's, not a list
        """The present batch's images."""
        return super().getdata()[0]

    def getlabel(self) -> NDArray:  # type: ignore[override]
        """The present batch's labels."""
        return super().getlabel()[0]
