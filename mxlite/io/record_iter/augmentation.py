"""Augmentation of one image, uint8 (H, W, C); every random choice comes from the given generator.

The order is that of MXNet's default augmenter:

    resize  ->  a random part resized  |  affine, pad, crop  ->  brightness, contrast, saturation  ->  H, L, S
            ->  noise along principal axes

An image smaller than the crop is enlarged first until it is not.
"""

from __future__ import annotations

import math

import numpy as np

from ..resample import AREA, CUBIC, LINEAR, resample
from . import colors
from .affine import warp
from .options import Options

_TRIES = 10
_ALL_METHODS = 5


class Augmentation:
    """`augmentation(image, rng)` is the image varied, (height, width, C) of the wanted shape."""

    def __init__(self, options: Options) -> None:
        self.options = options
        o = options
        _, self._height, self._width = o.data_shape
        ratio = 0.0 if o.random_resized_crop else o.max_aspect_ratio
        self._affine = (
            o.max_rotate_angle > 0
            or o.rotate > 0
            or o.max_shear_ratio > 0
            or o.scaled
            or ratio != 0
            or (o.min_img_size, o.max_img_size) != (0.0, 1e10)
        )
        self._ratio = ratio

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        o = self.options
        if o.resize != -1:
            h, w = image.shape[:2]
            new_h, new_w = (o.resize * h // w, o.resize) if h > w else (o.resize, o.resize * w // h)
            image = self._resized(image, new_w, new_h, rng)
        if o.random_resized_crop:
            image = self._random_part(image, rng)
        else:
            if self._affine:
                image = self._turned(image, rng)
            if o.pad:
                frame = (image.shape[0] + 2 * o.pad, image.shape[1] + 2 * o.pad, image.shape[2])
                padded = np.full(frame, o.fill_value, np.uint8)
                padded[o.pad : -o.pad, o.pad : -o.pad] = image
                image = padded
            image = self._cropped(image, rng)
        return colors.varied(image, o, rng)

    def _resized(self, image: np.ndarray, width: int, height: int, rng: np.random.Generator) -> np.ndarray:
        h, w = image.shape[:2]
        return resample(image, width, height, self._method(w, h, width, height, rng))

    def _method(self, old_w: int, old_h: int, new_w: int, new_h: int, rng: np.random.Generator) -> int:
        return chosen_method(self.options.inter_method, old_w, old_h, new_w, new_h, rng)

    def _random_part(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A crop of random area, aspect ratio and position, resized; the middle if ten tries did not fit."""
        o = self.options
        h, w = image.shape[:2]
        least = 1.0 if o.min_aspect_ratio is None else o.min_aspect_ratio
        most = o.max_aspect_ratio or 1.0
        for _ in range(_TRIES):
            area = rng.uniform(o.min_random_area, o.max_random_area) * h * w
            ratio = rng.uniform(least, most)
            if rng.random() < 0.5:
                ratio = 1 / ratio
            part_w, part_h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 1 <= part_w <= w and 1 <= part_h <= h:
                y, x = rng.integers(h - part_h + 1), rng.integers(w - part_w + 1)
                return self._resized(image[y : y + part_h, x : x + part_w], self._width, self._height, rng)
        # The largest part of the wanted form, from the middle.
        share = min(w / self._width, h / self._height)
        part_w, part_h = max(1, int(self._width * share)), max(1, int(self._height * share))
        y, x = (h - part_h) // 2, (w - part_w) // 2
        return self._resized(image[y : y + part_h, x : x + part_w], self._width, self._height, rng)

    def _turned(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The image sheared, rotated, scaled and stretched about its centre."""
        o = self.options
        h, w = image.shape[:2]
        shear = rng.uniform(-o.max_shear_ratio, o.max_shear_ratio) if o.max_shear_ratio else 0.0
        angle = rng.integers(-o.max_rotate_angle, o.max_rotate_angle + 1) if o.max_rotate_angle else 0
        if o.rotate > 0:
            angle = o.rotate
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        scale = rng.uniform(o.min_random_scale, o.max_random_scale) if o.scaled else o.min_random_scale
        ratio = 1 + (rng.uniform(-self._ratio, self._ratio) if self._ratio else 0.0)
        hs = 2 * scale / (1 + ratio)
        ws = ratio * hs
        new_w = max(o.min_img_size, min(o.max_img_size, scale * w))
        new_h = max(o.min_img_size, min(o.max_img_size, scale * h))
        matrix = np.array(
            [[hs * cos - shear * sin * ws, hs * sin + shear * cos * ws], [-sin * ws, cos * ws]], np.float32
        )
        shift = (np.array([new_w, new_h]) - matrix @ np.array([w, h])) / 2
        method = self._method(w, h, int(new_w), int(new_h), rng)
        return warp(image, matrix, shift, max(1, int(new_w)), max(1, int(new_h)), method, o.fill_value)

    def _cropped(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        o = self.options
        width, height = self._width, self._height
        if o.max_crop_size != -1:
            side = int(rng.integers(o.min_crop_size, o.max_crop_size + 1))
            image = self._enlarged(image, side, side, rng)
            return self._resized(self._part(image, side, side, rng), width, height, rng)
        return self._part(self._enlarged(image, width, height, rng), width, height, rng)

    def _enlarged(self, image: np.ndarray, width: int, height: int, rng: np.random.Generator) -> np.ndarray:
        """The image, enlarged if it is smaller than width x height."""
        h, w = image.shape[:2]
        if h < height:
            image = self._resized(image, max(1, int(height / h * w)), height, rng)
        h, w = image.shape[:2]
        if w < width:
            image = self._resized(image, width, max(1, int(width / w * h)), rng)
        return image

    def _part(self, image: np.ndarray, width: int, height: int, rng: np.random.Generator) -> np.ndarray:
        y, x = image.shape[0] - height, image.shape[1] - width
        if self.options.rand_crop:
            y, x = int(rng.integers(y + 1)), int(rng.integers(x + 1))
        else:
            y, x = y // 2, x // 2
        return image[y : y + height, x : x + width]


def chosen_method(
    method: int, old_w: int, old_h: int, new_w: int, new_h: int, rng: np.random.Generator
) -> int:
    """The interpolation method, with the choices of `inter_method` 9 and 10 made."""
    if method == 9:
        if new_w > old_w and new_h > old_h:
            return CUBIC
        return AREA if new_w < old_w and new_h < old_h else LINEAR
    return int(rng.integers(_ALL_METHODS)) if method == 10 else method
