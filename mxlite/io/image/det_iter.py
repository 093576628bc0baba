"""Batches of images with labelled boxes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core.errors import ArgumentError, FormatError, ShapeError
from ...core.log import Log
from ...ndarray import NDArray
from ..box_label import parse_box_label
from ..iterator import DataDesc
from .create import IMAGENET_MEAN, IMAGENET_STD
from .det_create import CreateDetAugmenter
from .image_iter import ImageIter

_log = Log(__name__)

Step = Callable[[NDArray, np.ndarray], tuple[NDArray, np.ndarray]]
LabelShape = tuple[int, int]

_LEFT_OUT = "An image is left out: %s"


class ImageDetIter(ImageIter):
    """Batches of images with boxes. data: (N, 3, H, W) float32;  label: (N, L, W) float32.

    Each image's label is A, W, A - 2 numbers that are ignored, then W numbers for each object: class, x1,
    y1, x2, y2 as parts of the image's width and height, and W - 5 more. Objects of no width or height are
    left out, as are images without any other. L is the largest number of objects of an image, which all
    labels are read for at first; rows after an image's objects are -1.

    Images have the same sources as for `ImageIter`. `aug_list`, by default `CreateDetAugmenter(data_shape,
    **kwargs)`, varies each image and its boxes.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        path_imgrec: str | os.PathLike[str] | None = None,
        path_imglist: str | os.PathLike[str] | None = None,
        path_root: str | os.PathLike[str] | None = None,
        path_imgidx: str | os.PathLike[str] | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Step] | None = None,
        imglist: Sequence[Any] | None = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            batch_size,
            data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=[],
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
        )
        self.auglist: list[Any] = list(
            CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        )
        self.label_shape = self._estimate_label_shape()
        self._describe_label()

    def _describe_label(self) -> None:
        name = self.provide_label[0][0]
        self.provide_label = [DataDesc(name, (self.batch_size, *self.label_shape))]

    # -- labels --------------------------------------------------------------------------------

    def _estimate_label_shape(self) -> LabelShape:
        """The largest number of objects of an image, and numbers of an object."""
        most = width = 0
        self.reset()
        while True:
            try:
                label, _ = self.next_sample()
            except StopIteration:
                break
            objects = self._parse_label(label)
            most, width = max(most, objects.shape[0]), objects.shape[1]
        self.reset()
        return most, width

    def _parse_label(self, label: Any) -> np.ndarray:
        """Objects (n, W) out of an image's label; FormatError if there are none."""
        raw = np.asarray(label.asnumpy() if isinstance(label, NDArray) else label, np.float32).reshape(-1)
        _, objects = parse_box_label(raw, self._here())
        if not len(objects):
            raise FormatError(f"{self._here()} has no box with width and height.")
        return objects

    def _check_valid_label(self, label: np.ndarray) -> None:
        """Raise FormatError for objects that are to be left out together with their image."""
        if label.ndim != 2 or label.shape[1] < 5:
            raise FormatError(f"Labels are (n, 5 or more), got {label.shape}.")
        sound = (label[:, 0] >= 0) & (label[:, 3] > label[:, 1]) & (label[:, 4] > label[:, 2])
        if not sound.any():
            raise FormatError(f"{self._here()} shows no object.")

    def _sample(self, image: NDArray, label: Any) -> tuple[NDArray, Any] | None:
        try:
            objects = self._parse_label(label)
        except RuntimeError as error:
            _log.debug(_LEFT_OUT, error)
            return None
        image, objects = self.augmentation_transform(image, objects)
        try:
            self._check_valid_label(objects)
        except RuntimeError as error:
            _log.debug(_LEFT_OUT, error)
            return None
        rows = np.full(self.label_shape, -1, np.float32)
        rows[: len(objects)] = objects
        return image, rows

    def augmentation_transform(self, data: NDArray, label: Any = None) -> Any:
        """Image and objects, varied."""
        for step in self.auglist:
            data, label = step(data, label)
        return data, label

    # -- shapes --------------------------------------------------------------------------------

    def reshape(self, data_shape: Sequence[int] | None = None, label_shape: LabelShape | None = None) -> None:
        """Give other shapes from now on; label_shape: (L, W) with L as large as it was, or larger.

        The augmenters that resize images to `data_shape` are in `auglist`, which stays as it is.
        """
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.data_shape = tuple(data_shape)
            self.provide_data = [DataDesc(self.provide_data[0][0], (self.batch_size, *self.data_shape))]
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.label_shape = label_shape
            self._describe_label()

    def check_label_shape(self, label_shape: Sequence[int]) -> None:
        """Raise ShapeError if labels do not fit."""
        most, width = self.label_shape
        if len(label_shape) != 2 or label_shape[0] < most or label_shape[1] != width:
            raise ShapeError(f"label_shape is (L, {width}) with L at least {most}, got {tuple(label_shape)}.")

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Make labels of this iterator and of `it` equally long; returns `it`."""
        if not isinstance(it, ImageDetIter):
            raise ArgumentError(f"sync_label_shape takes an ImageDetIter, got {it!r}.")
        if it.label_shape[1] != self.label_shape[1]:
            raise ShapeError(f"Objects of {self.label_shape[1]} and of {it.label_shape[1]} numbers.")
        most = max(self.label_shape[0], it.label_shape[0])
        for each in (self, it):
            if each.label_shape[0] < most:
                each.reshape(None, (most, each.label_shape[1]))
                if verbose:
                    _log.info("label_shape is now %s.", each.label_shape)
        return it

    def draw_next(
        self,
        color: Sequence[float] | None = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: Any = None,
    ) -> Iterator[np.ndarray]:
        """Images (H, W, 3) uint8, blue green red, with their boxes drawn.

        color: of the boxes, red green blue; None: each its own.  mean, std: what was subtracted and what was
        divided by, True for ImageNet's.  Nothing is shown and no names are written: `waitKey`, `window_name`
        and `id2labels` have no effect.
        """
        while True:
            try:
                label, raw = self.next_sample()
            except StopIteration:
                return
            image = self.imdecode(raw)
            try:
                self.check_valid_image([image])
                objects = self._parse_label(label)
            except RuntimeError as error:
                _log.debug(_LEFT_OUT, error)
                continue
            image, objects = self.augmentation_transform(image, objects)
            pixels = image.asnumpy().astype(np.float32)
            pixels *= np.asarray(1 if std is None else IMAGENET_STD if std is True else std, np.float32)
            pixels += np.asarray(0 if mean is None else IMAGENET_MEAN if mean is True else mean, np.float32)
            pixels = np.clip(pixels, 0, 255) if clip else pixels
            canvas = np.ascontiguousarray(pixels[:, :, ::-1]).astype(np.uint8)
            for box in objects[objects[:, 1] >= 0]:
                chosen = [255 * random.random() for _ in range(3)] if color is None else color[::-1]
                _outline(canvas, box[1:5], chosen, thickness)
            yield canvas


def _outline(canvas: np.ndarray, box: np.ndarray, color: Any, thickness: int) -> None:
    """Draw a box given as parts of the canvas (H, W, 3)."""
    h, w = canvas.shape[:2]
    x1, y1, x2, y2 = (int(v) for v in box * (w, h, w, h))
    inner, outer = thickness - thickness // 2, thickness // 2
    rows, columns = np.arange(h)[:, None], np.arange(w)
    frame = (rows >= y1 - outer) & (rows < y2 + outer) & (columns >= x1 - outer) & (columns < x2 + outer)
    hole = (rows >= y1 + inner) & (rows < y2 - inner) & (columns >= x1 + inner) & (columns < x2 - inner)
    canvas[frame & ~hole] = color
