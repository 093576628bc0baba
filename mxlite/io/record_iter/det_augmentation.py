"""Augmentation of an image, (H, W, C) uint8, and its boxes, (n, 5 or more); random choices from a generator.

The order is that of MXNet's augmenter for detection:

    resize  ->  H, L, S, contrast  ->  mirror  ->  a larger frame  ->  a part  ->  the wanted size
"""

from __future__ import annotations

import math

import numpy as np

from ..resample import resample
from .augmentation import chosen_method
from .colors import cut, shifted_hls
from .det_options import DetOptions, Sampler

Box = tuple[float, float, float, float]
"""x, y, width, height as parts of the image's."""

_LEAST_PAD = 1.05  # smaller factors make no frame


class DetAugmentation:
    """`augmentation(image, objects, rng)` varies both; the image is then at most (height, width, C) large."""

    def __init__(self, options: DetOptions) -> None:
        self.options = options
        self._samplers = options.samplers

    def __call__(
        self, image: np.ndarray, objects: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        o = self.options
        if o.resize != -1:
            h, w = image.shape[:2]
            width, height = (o.resize, o.resize * h // w) if h > w else (o.resize * w // h, o.resize)
            image = self._resized(image, width, height, rng)
        image = self._colored(image, rng)
        if o.rand_mirror_prob > 0 and rng.random() < o.rand_mirror_prob:
            image, objects = image[:, ::-1], objects.copy()
            objects[:, [1, 3]] = 1 - objects[:, [3, 1]]
        if o.rand_pad_prob > 0 and o.max_pad_scale > 1 and rng.random() < o.rand_pad_prob:
            image, objects = self._padded(image, objects, rng)
        if o.rand_crop_prob > 0 and self._samplers and rng.random() < o.rand_crop_prob:
            image, objects = self._cropped(image, objects, rng)
        return self._fitted(image, rng), objects

    def _resized(self, image: np.ndarray, width: int, height: int, rng: np.random.Generator) -> np.ndarray:
        h, w = image.shape[:2]
        return resample(
            image, width, height, chosen_method(self.options.inter_method, w, h, width, height, rng)
        )

    def _colored(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        o = self.options
        parts = (
            (o.max_random_hue, o.random_hue_prob),
            (o.max_random_illumination, o.random_illumination_prob),
            (o.max_random_saturation, o.random_saturation_prob),
            (o.max_random_contrast, o.random_contrast_prob),
        )
        if not any(p > 0 for _, p in parts) or image.shape[2] != 3:
            return image
        moves = [rng.uniform(-1, 1) * most * (rng.random() < p) for most, p in parts]
        h, l_, s = (int(v) for v in moves[:3])
        if h or l_ or s:
            image = shifted_hls(image, h, l_, s)
        return cut(image * np.float32(1 + moves[3])) if abs(moves[3]) > 1e-3 else image

    def _padded(
        self, image: np.ndarray, objects: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        o = self.options
        scale = rng.uniform(1, o.max_pad_scale)
        if scale < _LEAST_PAD:
            return image, objects
        x, y = rng.uniform(0, scale - 1, 2)
        h, w, channels = image.shape
        left, top = int(x * w), int(y * h)
        right, bottom = int((scale - x - 1) * w), int((scale - y - 1) * h)
        frame = np.full((top + h + bottom, left + w + right, channels), o.fill_value, np.uint8)
        frame[top : top + h, left : left + w] = image
        return frame, _projected(objects, (-x, -y, scale, scale))

    def _cropped(
        self, image: np.ndarray, objects: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first crop that a sampler accepts."""
        h, w = image.shape[:2]
        for k in rng.permutation(len(self._samplers)):
            sampler = self._samplers[k]
            for _ in range(sampler.trials):
                box = _proposed(sampler, w / h, rng)
                if not len(objects):
                    kept = objects
                elif not _accepts(sampler, box, objects):
                    continue
                else:
                    kept = self._kept(box, objects)
                    if not len(kept):
                        continue
                x, y = int(box[0] * w), int(box[1] * h)
                width, height = max(1, int(box[2] * w)), max(1, int(box[3] * h))
                return image[y : y + height, x : x + width], kept
        return image, objects

    def _kept(self, box: Box, objects: np.ndarray) -> np.ndarray:
        """The objects that are visible in a crop, in its coordinates."""
        if self.options.crop_emit_mode == "center":
            x, y = (objects[:, 1] + objects[:, 3]) / 2, (objects[:, 2] + objects[:, 4]) / 2
            inside = (x >= box[0]) & (x < box[0] + box[2]) & (y >= box[1]) & (y < box[1] + box[3])
        else:
            inside = _shared(box, objects) > self.options.emit_overlap_thresh * _areas(objects)
        return _projected(objects[inside], box)

    def _fitted(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        o = self.options
        _, height, width = o.data_shape
        h, w = image.shape[:2]
        if o.resize_mode == "force":
            return self._resized(image, width, height, rng)
        if o.resize_mode == "shrink" and h <= height and w <= width:
            return image
        share = min(height / h, width / w)
        return self._resized(image, max(1, int(share * w)), max(1, int(share * h)), rng)


def _projected(objects: np.ndarray, box: Box) -> np.ndarray:
    """Objects of an image in coordinates of a part of it, or of a frame around it."""
    projected = objects.copy()
    for columns, begin, length in (([1, 3], box[0], box[2]), ([2, 4], box[1], box[3])):
        projected[:, columns] = (objects[:, columns] - begin) / length
    np.maximum(projected[:, 1:3], 0, out=projected[:, 1:3])
    np.minimum(projected[:, 3:5], 1, out=projected[:, 3:5])
    return projected


def _proposed(s: Sampler, form: float, rng: np.random.Generator) -> Box:
    """A part of an image whose width is `form` times its height."""
    scale = rng.uniform(*s.scales) + 1e-12
    least, most = max(s.ratios[0] / form, scale**2), min(s.ratios[1] / form, scale**-2)
    ratio = math.sqrt(rng.uniform(least, most) if least < most else least)
    width, height = min(1.0, scale * ratio), min(1.0, scale / ratio)
    return rng.uniform(0, 1 - width), rng.uniform(0, 1 - height), width, height


def _accepts(s: Sampler, box: Box, objects: np.ndarray) -> bool:
    """True if some object lies in the part as the sampler wants it; bounds of 0 and 1 want nothing."""
    if all(bounds == (0, 1) for bounds in (s.overlaps, s.sample, s.objects)):
        return True
    shared, areas, area = _shared(box, objects), _areas(objects), box[2] * box[3]
    fits = np.ones(len(objects), bool)
    for (low, high), of in ((s.overlaps, areas + area - shared), (s.sample, area), (s.objects, areas)):
        if (low, high) != (0, 1):
            fits &= (shared >= low * of) & (shared <= high * of)
    return bool(fits.any())


def _areas(objects: np.ndarray) -> np.ndarray:
    return (objects[:, 3] - objects[:, 1]) * (objects[:, 4] - objects[:, 2])


def _shared(box: Box, objects: np.ndarray) -> np.ndarray:
    """The areas that objects share with a box."""
    x, y, width, height = box
    across = np.minimum(objects[:, 3], x + width) - np.maximum(objects[:, 1], x)
    down = np.minimum(objects[:, 4], y + height) - np.maximum(objects[:, 2], y)
    return np.maximum(across, 0) * np.maximum(down, 0)
