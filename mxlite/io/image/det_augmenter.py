"""Augmenters for detection: they vary an image and its labelled boxes together.

Labels are arrays (n, 5 or more), rows of class, x1, y1, x2, y2 and more, the corners as parts of the image's
width and height.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core.errors import ArgumentError, MissingMethodError, RangeError
from ...ndarray import NDArray
from .augmenter import Augmenter, plain
from .crop import copyMakeBorder, fixed_crop, Place


class DetAugmenter:
    """Base of all augmenters for detection. A subclass defines `__call__` and gives its parameters to
    `__init__`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {k: plain(v) for k, v in kwargs.items()}

    def dumps(self) -> Any:
        """The class's name in lower case and the parameters, as JSON."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        raise MissingMethodError(f"{type(self).__name__} must define __call__(src, label).")


class DetBorrowAug(DetAugmenter):
    """An `Augmenter` that leaves boxes unchanged."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise ArgumentError(f"DetBorrowAug takes an Augmenter, got {augmenter!r}.")
        super().__init__(augmenter=augmenter.dumps())
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """One of several augmenters, any with the same probability; none with probability `skip_prob`."""

    def __init__(self, aug_list: DetAugmenter | Sequence[DetAugmenter], skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        self.aug_list: list[Any] = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        for step in self.aug_list:
            if not isinstance(step, DetAugmenter):
                raise RangeError(f"DetRandomSelectAug takes DetAugmenters, got {step!r}.")
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [step.dumps() for step in self.aug_list]]

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        if random.random() < self.skip_prob:
            return src, label
        random.shuffle(self.aug_list)
        return self.aug_list[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Mirrors left and right, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        if random.random() < self.p:
            src = nd.flip(src, axis=1)
            label[:, [1, 3]] = 1.0 - label[:, [3, 1]]
        return src, label


class _RandomFrame(DetAugmenter):
    """Base of augmenters with a new frame of random shape and area; `max_attempts` tries, then none."""

    smallest = 0.0  # the area range must reach beyond it

    def __init__(self, aspect_ratio_range: Any, area_range: Any, max_attempts: int, **kwargs: Any) -> None:
        self.aspect_ratio_range, self.area_range = _range(aspect_ratio_range), _range(area_range)
        self.max_attempts = max_attempts
        super().__init__(
            aspect_ratio_range=self.aspect_ratio_range,
            area_range=self.area_range,
            max_attempts=max_attempts,
            **kwargs,
        )
        self.enabled = True
        (least, most), (narrow, wide) = self.area_range, self.aspect_ratio_range
        for name, value, sound in (
            ("area_range", self.area_range, least <= most and most > self.smallest),
            ("aspect_ratio_range", self.aspect_ratio_range, 0 < narrow <= wide),
        ):
            if not sound:
                warnings.warn(f"{type(self).__name__} does nothing: {name} is {value}.", stacklevel=3)
                self.enabled = False


def _range(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value, value)


class DetRandomCropAug(_RandomFrame):
    """A crop of random aspect ratio, area and position in which enough of some box is visible.

    Its area is `area_range` times the image's, its width `aspect_ratio_range` times its height. Every box
    that it touches must lie inside by more than `min_object_covered` of its area, and boxes with no more than
    `min_eject_coverage` of their area inside are dropped; a part without boxes will not do.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        super().__init__(
            aspect_ratio_range,
            area_range,
            max_attempts,
            min_object_covered=min_object_covered,
            min_eject_coverage=min_eject_coverage,
        )
        self.min_object_covered, self.min_eject_coverage = min_object_covered, min_eject_coverage

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        height, width = src.shape[:2]
        for _ in range(self.max_attempts if self.enabled and height > 0 and width > 0 else 0):
            place = self._proposed(width, height)
            if place is None or not self._covers(label, place, width, height):
                continue
            kept = self._moved(label, place, width, height)
            if len(kept):
                return fixed_crop(src, *place), kept
        return src, label

    def _proposed(self, width: int, height: int) -> Place | None:
        least, most = (share * height * width for share in self.area_range)
        ratio = random.uniform(*self.aspect_ratio_range)
        if ratio <= 0:
            return None
        h, tallest = round(math.sqrt(least / ratio)), round(math.sqrt(most / ratio))
        if round(tallest * ratio) > width:
            tallest = int((width + 0.4999999) / ratio)
        tallest = min(tallest, height)
        h = random.randint(h, tallest) if h < tallest else tallest
        w = round(h * ratio)
        # Rounding may have gone over a bound by one row.
        if w * h < least:
            h += 1
            w = round(h * ratio)
        if w * h > most:
            h -= 1
            w = round(h * ratio)
        if not (least <= w * h <= most and 0 <= w <= width and 0 <= h <= height):
            return None
        y = random.randint(0, height - h)
        return random.randint(0, width - w), y, w, h

    def _covers(self, label: np.ndarray, place: Place, width: int, height: int) -> bool:
        """True if a part has boxes, and enough of each one that it touches."""
        x, y, w, h = place
        if w * h < 2:
            return False
        areas = _areas(label)
        large = areas * width * height > 2
        inside = label[large].copy()
        np.maximum(inside[:, 1:3], (x / width, y / height), out=inside[:, 1:3])
        np.minimum(inside[:, 3:5], ((x + w) / width, (y + h) / height), out=inside[:, 3:5])
        coverage = _areas(inside) / areas[large]
        coverage = coverage[coverage > 0]
        return coverage.size > 0 and float(coverage.min()) > self.min_object_covered

    def _moved(self, label: np.ndarray, place: Place, width: int, height: int) -> np.ndarray:
        """The boxes that stay, in coordinates of the part."""
        x, y, w, h = place[0] / width, place[1] / height, place[2] / width, place[3] / height
        moved = label.copy()
        for columns, begin, length in (([1, 3], x, w), ([2, 4], y, h)):
            moved[:, columns] -= begin
            moved[:, columns] /= length
        np.clip(moved[:, 1:5], 0, 1, out=moved[:, 1:5])
        with np.errstate(divide="ignore", invalid="ignore"):  # a box of no area is covered nowhere
            coverage = _areas(moved) * w * h / _areas(label)
        stays = (moved[:, 3] > moved[:, 1]) & (moved[:, 4] > moved[:, 2])
        return moved[stays & (coverage > self.min_eject_coverage)]


def _areas(label: np.ndarray) -> Any:
    """Areas (n,) of the boxes of labels."""
    return np.maximum(0, label[:, 4] - label[:, 2]) * np.maximum(0, label[:, 3] - label[:, 1])


class DetRandomPadAug(_RandomFrame):
    """A larger frame of random aspect ratio, the image at a random position in it, `pad_val` around it."""

    smallest = 1.0

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        super().__init__(aspect_ratio_range, area_range, max_attempts, pad_val=pad_val)
        self.pad_val = pad_val

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        height, width, channels = src.shape
        for _ in range(self.max_attempts if self.enabled and height > 0 and width > 0 else 0):
            place = self._proposed(width, height)
            if place is None:
                continue
            x, y, w, h = place
            moved = label.copy()
            moved[:, [1, 3]] = (moved[:, [1, 3]] * width + x) / w
            moved[:, [2, 4]] = (moved[:, [2, 4]] * height + y) / h
            colors = self.pad_val if isinstance(self.pad_val, (list, tuple)) else [self.pad_val] * channels
            return copyMakeBorder(src, y, h - y - height, x, w - x - width, values=colors), moved
        return src, label

    def _proposed(self, width: int, height: int) -> Place | None:
        """The image's position in a new frame, and the frame's size."""
        least, most = (share * height * width for share in self.area_range)
        ratio = random.uniform(*self.aspect_ratio_range)
        if ratio <= 0:
            return None
        h, tallest = round(math.sqrt(least / ratio)), round(math.sqrt(most / ratio))
        if round(h * ratio) < width:
            h = int((width + 0.499999) / ratio)
        h = min(max(h, height), tallest)
        if h < tallest:
            h = random.randint(h, tallest)
        w = round(h * ratio)
        if h - height < 2 or w - width < 2:
            return None
        y = random.randint(0, h - height)
        return random.randint(0, w - width), y, w, h
