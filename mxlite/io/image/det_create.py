"""The usual augmenters for detection, in the usual order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import RangeError
from .augmenter import Augmenter, ForceResizeAug, ResizeAug
from .create import color_steps
from .det_augmenter import (
    DetAugmenter,
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """One of several `DetRandomCropAug` at a time, none with probability `skip_prob`.

    Each parameter is a list with one value for each of them, or one value for all.
    """
    given = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts)
    lists = [value if isinstance(value, list) else [value] for value in given]
    count = max(len(values) for values in lists)
    if any(len(values) not in (1, count) for values in lists):
        raise RangeError(
            f"Lists of parameters are equally long, or of one value: got {[len(values) for values in lists]}."
        )
    rows = zip(*(values * count if len(values) == 1 else values for values in lists))
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in rows], skip_prob=skip_prob)


def CreateDetAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """A list of augmenters for detection that end in float32 images of `data_shape` = (C, H, W), still (H,
    W, C).

    resize: length of the shorter side at first, 0 for as it is.  rand_crop, rand_pad: probability of a part
    of the image, and of a larger frame around it, whose area is at most area_range[1] times the image's; see
    `DetRandomCropAug`, `DetRandomPadAug`.  mean, std: arrays of 1 or 3 numbers, or True for ImageNet's.
    inter_method: see `imresize`.
    """
    steps: list[DetAugmenter] = []
    if resize > 0:
        steps.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        steps.append(
            CreateMultiRandCropAugmenter(
                min_object_covered,
                aspect_ratio_range,
                area_range,
                min_eject_coverage,
                max_attempts,
                skip_prob=1 - rand_crop,
            )
        )
    if rand_mirror:
        steps.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        steps.append(DetRandomSelectAug([pad], 1 - rand_pad))
    same: list[Augmenter] = [ForceResizeAug((data_shape[2], data_shape[1]), inter_method)]
    same += color_steps(
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        pca_noise=pca_noise,
        rand_gray=rand_gray,
        mean=mean,
        std=std,
    )
    return steps + [DetBorrowAug(step) for step in same]
