"""From a record to a row of a batch: what a thread does for one image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import FormatError, ShapeError
from ..image_codec import decode
from ..image_list import read_image_list
from ..recordio.image_record import IRHeader, unpack
from .augmentation import Augmentation
from .normalization import Normalization
from .options import Options

_FLAGS = {1: 0, 3: 1, 4: -1}
"""Channels -> what `decode` is to give."""


class Decoder:
    """`decoder.fill(record, ...)` decodes, varies and normalizes an image into a row of a batch.

    Random choices follow from seed, epoch and position alone: not from the number of threads.
    """

    def __init__(self, options: Options, mean: np.ndarray | None = None) -> None:
        self.options = options
        self._augment = Augmentation(options)
        self._normalize = Normalization(options, mean)
        self._seed = (options.seed if options.seed_aug is None else options.seed_aug) % 2**64
        self._labels: dict[int, np.ndarray] | None = None
        if options.path_imglist:
            self._labels = {i.number: i.labels for i in read_image_list(options.path_imglist)}

    def fill(
        self, record: bytes, at: int, place: tuple[int, int], out: np.ndarray, label: np.ndarray
    ) -> None:
        """out: (C, H, W), label: (label_width,). `at`: the record's byte; `place`: epoch and position."""
        image, header, rng = self.image(record, at, place)
        label[:] = self._label_of(header, at)
        self._normalize.write(image, out, rng)

    def image(
        self, record: bytes, at: int, place: tuple[int, int]
    ) -> tuple[np.ndarray, IRHeader, np.random.Generator]:
        """The image varied, (H, W, C) uint8, with its head and the generator for what is left to choose."""
        o = self.options
        channels = o.data_shape[0]
        epoch, position = place
        key = np.array([self._seed, epoch], np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, position]))
        try:
            header, raw = unpack(record)
            image = decode(raw, _FLAGS[channels], upright=channels < 4)
            image = image[..., None] if image.ndim == 2 else image
            if image.shape[2] != channels:
                raise ShapeError(
                    f"it has {image.shape[2]} channels, but data_shape is {tuple(o.data_shape)}."
                )
        except (FormatError, ShapeError) as error:
            raise type(error)(f"{o.path_imgrec}, the record at byte {at:,}: {error}") from None
        return self._augment(image, rng), header, rng

    def _label_of(self, header: IRHeader, at: int) -> Any:
        o = self.options
        if self._labels is None:
            labels = np.atleast_1d(np.asarray(header.label, np.float32))
        else:
            if header.id not in self._labels:
                raise FormatError(
                    f"{o.path_imglist} has no image {header.id}, which is in {o.path_imgrec} at byte {at:,}."
                )
            labels = self._labels[header.id]
        if len(labels) != o.label_width:
            raise ShapeError(
                f"{o.path_imgrec}, the record at byte {at:,}: {len(labels)} labels, but label_width is "
                f"{o.label_width}."
            )
        return labels
