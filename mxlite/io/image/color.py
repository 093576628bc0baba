"""Augmenters of colours. All but `RandomGrayAug` and `HueJitterAug` write into the image itself.

Images are (H, W, 3), red green blue, of float32: a `CastAug` comes before.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...ndarray import NDArray
from .augmenter import Augmenter, RandomOrderAug

_BRIGHTNESS = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in brightness (ITU-R BT.601)."""
_TO_YIQ = np.array([_BRIGHTNESS, (0.596, -0.274, -0.321), (0.211, -0.523, 0.311)])
_FROM_YIQ = np.array([(1.0, 0.956, 0.621), (1.0, -0.272, -0.647), (1.0, -1.107, 1.705)])
_GRAY = np.repeat([[0.21], [0.72], [0.07]], 3, axis=1)


def color_normalize(src: NDArray, mean: NDArray | None, std: NDArray | None = None) -> NDArray:
    """(src - mean) / std, in `src` itself; without those that are None."""
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


class ColorNormalizeAug(Augmenter):
    """`color_normalize`."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean if mean is None or isinstance(mean, NDArray) else nd.array(mean)
        self.std = std if std is None or isinstance(std, NDArray) else nd.array(std)

    def __call__(self, src: NDArray) -> NDArray:
        return color_normalize(src, self.mean, self.std)


class BrightnessJitterAug(Augmenter):
    """All values times a factor from [1 - brightness, 1 + brightness]."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        src *= 1.0 + random.uniform(-self.brightness, self.brightness)
        return src


class ContrastJitterAug(Augmenter):
    """Values stretched about the mean brightness by a factor from [1 - contrast, 1 + contrast]."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef = nd.array([[_BRIGHTNESS]])

    def __call__(self, src: NDArray) -> NDArray:
        factor = 1.0 + random.uniform(-self.contrast, self.contrast)
        mean = nd.sum(src * self.coef) * (3.0 * (1.0 - factor) / src.size)
        src *= factor
        src += mean
        return src


class SaturationJitterAug(Augmenter):
    """Colours stretched about the pixel's brightness by a factor from [1 - saturation, 1 + saturation]."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef = nd.array([[_BRIGHTNESS]])

    def __call__(self, src: NDArray) -> NDArray:
        factor = 1.0 + random.uniform(-self.saturation, self.saturation)
        gray = nd.sum(src * self.coef, axis=2, keepdims=True) * (1.0 - factor)
        src *= factor
        src += gray
        return src


class HueJitterAug(Augmenter):
    """Colours turned about gray by an angle from [-hue, hue] times 180 degrees, in the YIQ space of NTSC."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue

    def __call__(self, src: NDArray) -> NDArray:
        angle = random.uniform(-self.hue, self.hue) * np.pi
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]])
        return nd.dot(src, nd.array((_FROM_YIQ @ turn @ _TO_YIQ).T))


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation jittered, in random order; jitters of size 0 are left out."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        steps: list[Augmenter] = []
        if brightness > 0:
            steps.append(BrightnessJitterAug(brightness))
        if contrast > 0:
            steps.append(ContrastJitterAug(contrast))
        if saturation > 0:
            steps.append(SaturationJitterAug(saturation))
        super().__init__(steps)


class LightingAug(Augmenter):
    """Noise along the principal axes of the colours of a data set.

    A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet classification with deep convolutional neural networks,
    2012. eigval: (3,), eigvec: (3, 3), `alphastd` how much.
    """

    def __init__(self, alphastd: float, eigval: np.ndarray, eigvec: np.ndarray) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, eigval, eigvec

    def __call__(self, src: NDArray) -> NDArray:
        noise = np.random.normal(0, self.alphastd, size=(3,))  # noqa: NPY002  # MXNet's, so that its seed counts
        src += nd.array(np.dot(self.eigvec * noise, self.eigval))
        return src


class RandomGrayAug(Augmenter):
    """Gray in three channels, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat = nd.array(_GRAY)

    def __call__(self, src: NDArray) -> NDArray:
        return nd.dot(src, self.mat) if random.random() < self.p else src
