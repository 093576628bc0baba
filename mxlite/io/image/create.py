"""The usual augmenters, in the usual order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import RangeError, ShapeError
from ...ndarray import array, NDArray
from .augmenter import (
    Augmenter,
    CastAug,
    CenterCropAug,
    HorizontalFlipAug,
    RandomCropAug,
    RandomSizedCropAug,
    ResizeAug,
)
from .color import ColorJitterAug, ColorNormalizeAug, HueJitterAug, LightingAug, RandomGrayAug

IMAGENET_MEAN = (123.68, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Means of red, green and blue of ImageNet's training images, 0 to 255."""
IMAGENET_EIGVAL = np.array([55.46, 4.794, 1.148])
IMAGENET_EIGVEC = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
"""Principal components of the colours of ImageNet's training images."""


def CreateAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """A list of augmenters that end in float32 images of `data_shape` = (C, H, W), still (H, W, C).

    resize: length of the shorter side at first, 0 for as it is.  rand_crop: a part from anywhere instead of
    the middle; with rand_resize also of any area from 8 % on and forms from 3:4 to 4:3.  mean, std: arrays
    of 1 or 3 numbers, or True for ImageNet's.  inter_method: see `imresize`.  The others: see the augmenters.
    """
    steps: list[Augmenter] = []
    if resize > 0:
        steps.append(ResizeAug(resize, inter_method))
    size = (data_shape[2], data_shape[1])
    if rand_resize:
        if not rand_crop:
            raise RangeError("rand_resize is a kind of random crop: set rand_crop=True too.")
        steps.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    elif rand_crop:
        steps.append(RandomCropAug(size, inter_method))
    else:
        steps.append(CenterCropAug(size, inter_method))
    if rand_mirror:
        steps.append(HorizontalFlipAug(0.5))
    return steps + color_steps(
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        pca_noise=pca_noise,
        rand_gray=rand_gray,
        mean=mean,
        std=std,
    )


def color_steps(
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    pca_noise: float,
    rand_gray: float,
    mean: Any,
    std: Any,
) -> list[Augmenter]:
    """The last steps of `CreateAugmenter`: the cast to float32, and the changes of colour."""
    steps: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        steps.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        steps.append(HueJitterAug(hue))
    if pca_noise > 0:
        steps.append(LightingAug(pca_noise, IMAGENET_EIGVAL, IMAGENET_EIGVEC))
    if rand_gray > 0:
        steps.append(RandomGrayAug(rand_gray))
    mean, std = _colors("mean", mean, IMAGENET_MEAN), _colors("std", std, IMAGENET_STD)
    if mean is not None or std is not None:
        steps.append(ColorNormalizeAug(mean, std))
    return steps


def _colors(what: str, value: Any, imagenet: Sequence[float]) -> Any:
    if value is True:
        return array(imagenet)
    if value is None or value is False:
        return None
    if not isinstance(value, (np.ndarray, NDArray)) or value.ndim != 1 or value.shape[0] not in (1, 3):
        raise ShapeError(f"{what} is True or an array of 1 or 3 numbers, got {value!r:.60}.")
    return value
