"""Batches of images from files or records, varied by augmenters; everything in Python, to be overridden."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.disk.files import opened
from ...core.errors import FormatError, nearest, RangeError, ShapeError
from ...core.log import Log
from ...ndarray import from_numpy, NDArray, transpose
from ..image_list import read_image_list
from ..iterator import DataBatch, DataDesc, DataIter
from ..recordio import MXIndexedRecordIO, MXRecordIO, unpack
from .create import CreateAugmenter
from .reading import imdecode

_log = Log(__name__)

_HANDLES = ("pad", "discard", "roll_over")
_LABEL_TYPES = ("int32", "float32", "int64", "float64")


class ImageIter(DataIter):
    """Batches of images. data: (N, 3, H, W) float32;  label: (N,), or (N, label_width).

    Images come from `path_imgrec` (a file of records; `path_imgidx`, its index, is needed to shuffle and for
    parts), or from files under `path_root` that `path_imglist` (a .lst file) or `imglist` names: a list of
    [label, path] or [label, label, ..., path]. With records and a list, labels are the list's.

    `aug_list`, by default `CreateAugmenter(data_shape, **kwargs)`, varies each image. `shuffle` is by
    Python's `random`. A part is the images [n // num_parts * part_index, ... + n // num_parts).
    `last_batch_handle`: "pad" fills the last batch from the front, "discard" leaves it out, "roll_over"
    keeps its images for the next epoch.

    Override `next_sample`, `imdecode`, `augmentation_transform`, `postprocess_data` or `read_image` to
    change a stage. For speed there is `mx.io.ImageRecordIter`.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        label_width: int = 1,
        path_imgrec: str | os.PathLike[str] | None = None,
        path_imglist: str | os.PathLike[str] | None = None,
        path_root: str | os.PathLike[str] | None = None,
        path_imgidx: str | os.PathLike[str] | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Callable[[NDArray], NDArray]] | None = None,
        imglist: Sequence[Any] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size)
        if not (path_imgrec or path_imglist or isinstance(imglist, list)):
            raise RangeError("ImageIter needs images: path_imgrec, path_imglist or imglist, a list.")
        if str(dtype) not in _LABEL_TYPES:
            raise RangeError(f"dtype, that of labels, is one of {_LABEL_TYPES}, got {dtype!r}.")
        if last_batch_handle not in _HANDLES:
            raise RangeError(
                f"last_batch_handle is one of {_HANDLES}, got {last_batch_handle!r}."
                f"{nearest(str(last_batch_handle), _HANDLES)}"
            )
        self.check_data_shape(data_shape)
        self.data_shape = tuple(data_shape)
        self.label_width = label_width
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.path_root = path_root
        self.imgrec: Any = None
        self.imgidx: list[int] | None = None
        if path_imgrec and path_imgidx:
            self.imgrec = MXIndexedRecordIO(path_imgidx, path_imgrec, "r")
            self.imgidx = list(self.imgrec.keys)
        elif path_imgrec:
            self.imgrec = MXRecordIO(path_imgrec, "r")
        self.imglist, keys = _listed(path_imglist, imglist, dtype)
        self.seq = self._sequence(keys, part_index, num_parts)
        self.num_image = None if self.seq is None else len(self.seq)
        label_shape = (batch_size, label_width) if label_width > 1 else (batch_size,)
        self.provide_data = [DataDesc(data_name, (batch_size, *self.data_shape))]
        self.provide_label = [DataDesc(label_name, label_shape)]
        self.auglist = CreateAugmenter(self.data_shape, **kwargs) if aug_list is None else list(aug_list)
        self.cur = 0
        self._ended = False
        self._carried: tuple[np.ndarray, np.ndarray, int] | None = None
        self.reset()

    def _sequence(self, keys: list[Any] | None, part_index: int, num_parts: int) -> list[Any] | None:
        """The keys of this part's images; None: one record after the other."""
        sequence = keys if self.imgrec is None else self.imgidx
        if not 0 <= part_index < num_parts:
            raise RangeError(f"part_index is in [0, num_parts) = [0, {num_parts}), got {part_index}.")
        if sequence is None:
            if self.shuffle or num_parts > 1:
                raise RangeError(
                    "Records can be shuffled or read in parts only with their index: give path_imgidx."
                )
            return None
        each = len(sequence) // num_parts
        if num_parts > 1:
            sequence = sequence[part_index * each : (part_index + 1) * each]
        if not sequence:
            raise ShapeError(f"Part {part_index} of {num_parts} has no images.")
        return sequence

    # -- moving --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Start from the first image, in a new order with `shuffle`."""
        if self.seq is not None and self.shuffle:
            random.shuffle(self.seq)
        self._rewind()

    def hard_reset(self) -> None:
        """Start anew, also without images that were to roll over."""
        self._carried = None
        self.reset()

    def _rewind(self) -> None:
        if self.imgrec is not None:
            self.imgrec.reset()
        self.cur = 0
        self._ended = False

    def next_sample(self) -> tuple[Any, bytes]:
        """(label, bytes of the image's file) of the next image; StopIteration at the end."""
        if self.seq is None:
            record = self.imgrec.read()
            if record is None:
                raise StopIteration
            self.cur += 1
            header, raw = unpack(record)
            return header.label, raw
        if self.cur >= len(self.seq):
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if self.imgrec is None:
            label, path = self.imglist[key]  # type: ignore[index]
            return label, self.read_image(path)
        header, raw = unpack(self.imgrec.read_idx(key))
        return (header.label if self.imglist is None else self.imglist[key][0]), raw

    def _fill(self, data: np.ndarray, label: np.ndarray, start: int) -> int:
        """Put images into the rows from `start` on; returns the row after the last one."""
        row = start
        while row < self.batch_size:
            try:
                value, raw = self.next_sample()
            except StopIteration:
                break
            image = self.imdecode(raw)
            try:
                self.check_valid_image([image])
            except RuntimeError as error:
                _log.debug("An image is left out: %s", error)
                continue
            sample = self._sample(image, value)
            if sample is None:
                continue
            image = self.postprocess_data(sample[0])
            data[row] = image.asnumpy() if isinstance(image, NDArray) else image
            label[row] = sample[1]
            row += 1
        return row

    def _sample(self, image: NDArray, label: Any) -> tuple[NDArray, Any] | None:
        """The image varied, and its rows of a batch's labels; None for an image to be left out."""
        return self.augmentation_transform(image), self._label(label)

    def _label(self, value: Any) -> Any:
        given = np.asarray(value, np.float32).reshape(-1)
        if len(given) != self.label_width:
            raise ShapeError(
                f"{self._here()} has {len(given)} labels, but label_width is {self.label_width}."
            )
        return given if self.label_width > 1 else given[0]

    def next(self) -> DataBatch:
        if self._ended:
            raise StopIteration
        if self._carried is not None:
            data, label, begun = self._carried
            self._carried = None
        else:
            data = np.zeros(self.provide_data[0].shape, np.float32)
            label = np.zeros(self.provide_label[0].shape, np.float32)
            begun = 0
        row = self._fill(data, label, begun)
        pad = self.batch_size - (begun or row)  # as MXNet counts the rows that rolled over
        if row < self.batch_size:
            self._ended = True
            if row == 0 or self.last_batch_handle == "discard":
                raise StopIteration
            if self.last_batch_handle == "roll_over":
                self._carried = data, label, row
                raise StopIteration
            before = 0
            while before < row < self.batch_size:
                self._rewind()
                self._ended = True
                before, row = row, self._fill(data, label, row)
        return DataBatch([from_numpy(data)], [from_numpy(label)], pad=pad)

    # -- stages --------------------------------------------------------------------------------

    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Raise ShapeError if images of this shape cannot be given."""
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ShapeError(f"data_shape is (3, height, width), got {tuple(data_shape)}.")

    def check_valid_image(self, data: Sequence[NDArray]) -> None:
        """Raise ShapeError, or another RuntimeError, for an image that is to be left out."""
        if not data[0].shape:
            raise ShapeError("it has no axes.")

    def imdecode(self, s: bytes) -> NDArray:
        """(H, W, 3) uint8 from the bytes of an image's file."""
        try:
            return imdecode(s)
        except FormatError as error:
            raise FormatError(f"{self._here()}: {error}") from None

    def _here(self) -> str:
        """The last sample in words, for errors."""
        if self.seq is None:
            return f"Record {self.cur - 1} of {self.imgrec.uri}"
        key = self.seq[self.cur - 1]
        if self.imgrec is not None:
            return f"Record {key!r} of {self.imgrec.uri}"
        return f"The image {self.imglist[key][1]!r}"  # type: ignore[index]

    def read_image(self, fname: str) -> bytes:
        """The bytes of an image's file under `path_root`."""
        path = os.path.join(self.path_root or "", fname)
        # A pipe or a device may have no end, and no file has a name with a zero byte.
        if "\0" in path or (os.path.exists(path) and not os.path.isfile(path)):
            raise FormatError(f"{self._here()} is no file: {path!r}.")
        try:
            with opened(path) as file:
                return file.read()
        except OSError as error:
            if error.errno not in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP):
                raise
            raise FormatError(
                f"{self._here()} is no file: {error.strerror}, a name of {len(path)} characters."
            ) from None

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """The image, varied."""
        for step in self.auglist:
            data = step(data)
        return data

    def postprocess_data(self, datum: NDArray) -> Any:
        """(H, W, C) -> (C, H, W)."""
        return transpose(datum, axes=(2, 0, 1))


def _listed(
    path: str | os.PathLike[str] | None, images: Sequence[Any] | None, dtype: str
) -> tuple[dict[Any, tuple[np.ndarray, str]] | None, list[Any] | None]:
    """key -> (labels, path), and the keys in order; None, None without a list."""
    listed: dict[Any, tuple[np.ndarray, str]] = {}
    if path:
        for image in read_image_list(path):
            listed[image.number] = image.labels.astype(dtype), image.path
    elif isinstance(images, list):
        for number, entry in enumerate(images, 1):
            if not isinstance(entry, (list, tuple)) or len(entry) < 2 or not isinstance(entry[-1], str):
                raise RangeError(
                    f"Entry {number - 1} of imglist should be [label, path] or [label, label, ..., path], "
                    f"but is {entry!r:.80}."
                )
            labels = entry[:-1] if len(entry) > 2 else entry[0]
            listed[str(number)] = np.asarray(labels, dtype).reshape(-1), entry[-1]
    else:
        return None, None
    return listed, list(listed)
