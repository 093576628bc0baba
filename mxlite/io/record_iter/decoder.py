"""The decoder of one record: a thread turns it into a row of a batch."""

from __future__ import annotations

import numpy as np

from ...core.errors import FormatError, ShapeError
from ..image_codec import decode
from ..image_list import read_image_list
from ..recordio.image_record import IRHeader, unpack
from .augmentation import Augmentation
from .normalization import Normalization
from .options import Options, ReadOptions

_FLAGS = {1: 0, 3: 1, 4: -1}
"""Channels -> the `flag` of `decode`."""


class RecordDecoder:
    """Base of decoders of one record. `width`: the length of a row of labels.

    Random choices follow from seed, epoch and position alone: not from the number of threads.
    """

    width: int

    def __init__(self, options: ReadOptions) -> None:
        self._read = options
        self._seed = (options.seed if options.seed_aug is None else options.seed_aug) % 2**64
        self._labels: dict[int, np.ndarray] | None = None
        if options.path_imglist:
            self._labels = {i.number: i.labels for i in read_image_list(options.path_imglist)}

    def fill(
        self, record: bytes, at: int, place: tuple[int, int], out: np.ndarray, label: np.ndarray
    ) -> None:
        """out: (C, H, W), label: (width,). `at`: the record's byte; `place`: epoch and position."""
        raise NotImplementedError

    def rng(self, place: tuple[int, int]) -> np.random.Generator:
        """The generator for the random choices of the image at a position."""
        epoch, position = place
        key = np.array([self._seed, epoch], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, position]))

    def decode(self, record: bytes, at: int) -> tuple[np.ndarray, IRHeader]:
        """The image (H, W, C) uint8 and the head of its record."""
        shape = self._read.data_shape
        try:
            header, raw = unpack(record)
            image = decode(raw, _FLAGS[shape[0]], upright=shape[0] < 4)
            image = image[..., None] if image.ndim == 2 else image
            if image.shape[2] != shape[0]:
                raise ShapeError(f"it has {image.shape[2]} channels, but data_shape is {tuple(shape)}.")
        except (FormatError, ShapeError) as error:
            raise type(error)(f"{self.where(at)}: {error}") from None
        return image, header

    def labels_of(self, header: IRHeader, at: int) -> np.ndarray:
        """The labels of an image, from the list or the record."""
        if self._labels is None:
            return np.atleast_1d(np.asarray(header.label, np.float32))
        if header.id not in self._labels:
            raise FormatError(
                f"{self._read.path_imglist} has no image {header.id}, which is in {self._read.path_imgrec} "
                f"at byte {at:,}."
            )
        return self._labels[header.id]

    def where(self, at: int) -> str:
        """The record at that byte, for errors."""
        return f"{self._read.path_imgrec}, the record at byte {at:,}"


class Decoder(RecordDecoder):
    """`decoder.fill(record, ...)` decodes, varies and normalizes an image into a row of a batch."""

    def __init__(self, options: Options, mean: np.ndarray | None = None) -> None:
        super().__init__(options)
        self.width = options.label_width
        self._augment = Augmentation(options)
        self._normalize = Normalization(options, mean)

    def fill(
        self, record: bytes, at: int, place: tuple[int, int], out: np.ndarray, label: np.ndarray
    ) -> None:
        image, header, rng = self.image(record, at, place)
        labels = self.labels_of(header, at)
        if len(labels) != self.width:
            raise ShapeError(f"{self.where(at)}: {len(labels)} labels, but label_width is {self.width}.")
        label[:] = labels
        self._normalize.write(image, out, rng)

    def image(
        self, record: bytes, at: int, place: tuple[int, int]
    ) -> tuple[np.ndarray, IRHeader, np.random.Generator]:
        """The varied image, (H, W, C) uint8, with its header and the generator for further choices."""
        rng = self.rng(place)
        image, header = self.decode(record, at)
        return self._augment(image, rng), header, rng
