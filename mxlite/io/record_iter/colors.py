"""Augmentation of colours. Images are (H, W, C) of uint8, red green blue; each step rounds and clips."""

from __future__ import annotations

import numpy as np

from ..image.create import IMAGENET_EIGVAL, IMAGENET_EIGVEC
from .options import Options

_BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)


def varied(image: np.ndarray, o: Options, rng: np.random.Generator) -> np.ndarray:
    """The image with brightness, contrast, saturation varied in random order, then H, L and S, then noise."""
    steps = [
        (step, amount)
        for step, amount in ((_brighter, o.brightness), (_contrast, o.contrast), (_saturation, o.saturation))
        if amount > 0
    ]
    for i in rng.permutation(len(steps)) if steps else ():
        step, amount = steps[i]
        image = cut(step(image, 1 + rng.uniform(-amount, amount)))
    if (o.random_h or o.random_s or o.random_l) and image.shape[2] == 3:
        h, s, l_ = (
            int(rng.uniform(-most, most)) if most else 0 for most in (o.random_h, o.random_s, o.random_l)
        )
        image = shifted_hls(image, h, l_, s)
    if o.pca_noise > 0 and image.shape[2] == 3:
        noise = rng.normal(0, o.pca_noise, 3)
        image = cut(image + (IMAGENET_EIGVEC * noise) @ IMAGENET_EIGVAL)
    return image


def cut(values: np.ndarray) -> np.ndarray:
    """Values rounded and clipped to uint8."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _gray(image: np.ndarray) -> np.ndarray:
    """Brightness, (H, W, 1) of float32."""
    if image.shape[2] < 3:
        return image[..., :1].astype(np.float32)
    return (image[..., :3] @ _BRIGHTNESS)[..., None]


def _brighter(image: np.ndarray, factor: float) -> np.ndarray:
    return image * np.float32(factor)


def _contrast(image: np.ndarray, factor: float) -> np.ndarray:
    return image * np.float32(factor) + np.float32(_gray(image).mean() * (1 - factor))


def _saturation(image: np.ndarray, factor: float) -> np.ndarray:
    return image * np.float32(factor) + _gray(image) * np.float32(1 - factor)


def shifted_hls(image: np.ndarray, h: int, l_: int, s: int) -> np.ndarray:
    """The image with `h`, `l_` and `s` added to hue (of 180), lightness and saturation (of 255)."""
    hls = to_hls(image)
    moved = hls.astype(np.int32) + np.array([h, l_, s])
    return from_hls(np.clip(moved, 0, [180, 255, 255]).astype(np.uint8))


def to_hls(image: np.ndarray) -> np.ndarray:
    """Red, green, blue -> hue in [0, 180), lightness, saturation; all uint8, as in OpenCV."""
    rgb = image.astype(np.float32) / 255
    high, low = rgb.max(axis=2), rgb.min(axis=2)
    spread, total = high - low, high + low
    light = total / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(light < 0.5, spread / total, spread / (2 - total))
        r, g, b = (rgb[..., i] for i in range(3))
        hue = np.where(
            high == r,
            60 * (g - b) / spread,
            np.where(high == g, 120 + 60 * (b - r) / spread, 240 + 60 * (r - g) / spread),
        )
    flat = spread < np.finfo(np.float32).eps
    hue = np.where(flat, 0, np.where(hue < 0, hue + 360, hue))
    saturation = np.where(flat, 0, saturation)
    stacked = np.stack([np.rint(hue / 2) % 180, np.rint(light * 255), np.rint(saturation * 255)], axis=2)
    return stacked.astype(np.uint8)


def from_hls(hls: np.ndarray) -> np.ndarray:
    """The inverse of `to_hls`: hue, lightness, saturation -> red, green, blue."""
    hue = hls[..., 0].astype(np.float32) * 2
    light, saturation = hls[..., 1].astype(np.float32) / 255, hls[..., 2].astype(np.float32) / 255
    high = np.where(light <= 0.5, light * (1 + saturation), light + saturation - light * saturation)
    low = 2 * light - high
    rgb = []
    for turn in (120, 0, -120):
        # The share of the way from `low` to `high`: rising for 60 degrees, 1 for 120, falling for 60.
        at = np.mod(hue + turn, 360)
        share = np.clip(np.minimum(at / 60, (240 - at) / 60), 0, 1)
        rgb.append(low + (high - low) * share)
    return cut(np.stack(rgb, axis=2) * 255)
