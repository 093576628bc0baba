"""Transforms of images, (H, W, C): blocks for `dataset.transform_first`.

Random choices are those of `mx.image`: Python's `random`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....core.errors import RangeError
from ....io import image
from ...blocks.block import Block
from ...blocks.hybrid_block import HybridBlock
from ...nn.containers import HybridSequential as HybridSequential, Sequential


class Compose(Sequential):
    """Transforms one after another."""

    def __init__(self, transforms: Sequence[Block]) -> None:
        super().__init__()
        self.add(*transforms)


class RandomApply(Sequential):
    """A transform with probability `p`."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.add(*(transforms if isinstance(transforms, (list, tuple)) else [transforms]))
        self.p = p

    def forward(self, x: Any, *args: Any) -> Any:
        """The image, transformed or not."""
        return super().forward(x, *args) if random.random() < self.p else x


class Cast(HybridBlock):
    """The image in another type."""

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.cast(x, dtype=np.dtype(self._dtype).name)


class ToTensor(HybridBlock):
    """(H, W, C) of 0 to 255 -> (C, H, W) float32 of 0 to 1; also batches (N, H, W, C)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - mean) / std of each channel of (C, H, W)."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.image.normalize(x, mean=self._mean, std=self._std)


class Resize(Block):
    """The image, or each image (H, W, C) of a batch, in another size: a number, or (width, height).

    keep_ratio: the shorter side gets the number.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._keep, self._interpolation = size, keep_ratio, interpolation

    def forward(self, x: Any) -> Any:
        """See the class."""
        if x.ndim == 4:
            return nd.stack(*map(self.forward, x), axis=0)
        width, height = _pair(self._size)
        if self._keep and isinstance(self._size, int):
            return image.resize_short(x, width, self._interpolation)
        return image.imresize(x, width, height, self._interpolation)


class CropResize(Block):
    """The part from (x, y) on of that width and height, in another size if that is given; also of a batch."""

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: int | None = None
    ) -> None:
        super().__init__()
        self._where = (x, y, width, height)
        self._resize = None if size is None else Resize(size, False, interpolation or 1)

    def forward(self, data: Any) -> Any:
        """See the class."""
        part = nd.image.crop(data, *self._where)
        return part if self._resize is None else self._resize(part)


class CenterCrop(Block):
    """The middle of the image, of a size: a number, or (width, height)."""

    def __init__(self, size: Any, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = _pair(size), interpolation

    def forward(self, x: Any) -> Any:
        """See the class."""
        return image.center_crop(x, self._size, self._interpolation)[0]


class RandomCrop(Block):
    """A random part of that size, of the image with `pad` zeros around it."""

    def __init__(self, size: Any, pad: int | None = None, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._pad, self._interpolation = _pair(size), pad, interpolation

    def forward(self, x: Any) -> Any:
        """See the class."""
        if self._pad:
            width = ((self._pad, self._pad), (self._pad, self._pad), (0, 0))
            x = nd.array(np.pad(x.asnumpy(), width), dtype=x.dtype)
        return image.random_crop(x, self._size, self._interpolation)[0]


class RandomResizedCrop(Block):
    """A random part of the image, of that share of its area and that ratio of sides, in a fixed size."""

    def __init__(
        self, size: Any, scale: Any = (0.08, 1.0), ratio: Any = (3.0 / 4.0, 4.0 / 3.0), interpolation: int = 1
    ) -> None:
        super().__init__()
        self._size, self._scale, self._ratio, self._interpolation = _pair(size), scale, ratio, interpolation

    def forward(self, x: Any) -> Any:
        """See the class."""
        return image.random_size_crop(x, self._size, self._scale, self._ratio, self._interpolation)[0]


class _Flip(Block):
    """What both have in common: an axis."""

    _axis: int

    def forward(self, x: Any) -> Any:
        """The image, turned around with probability 1/2."""
        return nd.flip(x, axis=self._axis) if random.random() < 0.5 else x


class RandomFlipLeftRight(_Flip):
    """The image or its mirror image."""

    _axis = 1


class RandomFlipTopBottom(_Flip):
    """The image or the image upside down."""

    _axis = 0


class _Jitter(Block):
    """What transforms of colour have in common: an augmenter of `mx.image`, for float images."""

    def __init__(self, augment: Callable[[Any], Any]) -> None:
        super().__init__()
        self._augment = augment

    def forward(self, x: Any) -> Any:
        """The image with other colours, in the type that it had; whole numbers stay within 0 to 255."""
        changed = self._augment(x.astype("float32"))
        if np.issubdtype(x.dtype, np.integer):
            return changed.clip(0, 255).astype(x.dtype)
        return changed.astype(x.dtype)


class RandomBrightness(_Jitter):
    """The image times a factor within 1 - `brightness` and 1 + `brightness`."""

    def __init__(self, brightness: float) -> None:
        super().__init__(image.BrightnessJitterAug(brightness))


class RandomContrast(_Jitter):
    """The image nearer to its mean grey, or farther, by a factor within 1 - `contrast` and 1 + `contrast`."""

    def __init__(self, contrast: float) -> None:
        super().__init__(image.ContrastJitterAug(contrast))


class RandomSaturation(_Jitter):
    """The image nearer to its grey image, or farther."""

    def __init__(self, saturation: float) -> None:
        super().__init__(image.SaturationJitterAug(saturation))


class RandomHue(_Jitter):
    """The image with its colours turned by a random angle."""

    def __init__(self, hue: float) -> None:
        super().__init__(image.HueJitterAug(hue))


class RandomColorJitter(_Jitter):
    """Random brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> None:
        jitter = image.ColorJitterAug(brightness, contrast, saturation)
        turn = image.HueJitterAug(hue)
        super().__init__((lambda x: turn(jitter(x))) if hue else jitter)


class RandomLighting(_Jitter):
    """Noise along the main axes of ImageNet's colours, of that standard deviation."""

    def __init__(self, alpha: float) -> None:
        values = np.array([55.46, 4.794, 1.148])
        vectors = np.array(
            [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
        )
        super().__init__(image.LightingAug(alpha, values, vectors))


class Rotate(Block):
    """The image (C, H, W), float32, turned by degrees against the clock."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__()
        self._turn = (rotation_degrees, zoom_in, zoom_out)

    def forward(self, x: Any) -> Any:
        """See the class."""
        return image.imrotate(x, *self._turn)


class RandomRotation(Block):
    """`Rotate` by an angle within limits, with a probability."""

    def __init__(
        self, angle_limits: Any, zoom_in: bool = False, zoom_out: bool = False, rotate_with_proba: float = 1.0
    ) -> None:
        if not 0 <= rotate_with_proba <= 1:
            raise RangeError(f"RandomRotation: rotate_with_proba must be 0 to 1, got {rotate_with_proba}.")
        super().__init__()
        self._turn = (angle_limits, zoom_in, zoom_out)
        self._probability = rotate_with_proba

    def forward(self, x: Any) -> Any:
        """See the class."""
        return image.random_rotate(x, *self._turn) if random.random() < self._probability else x


def _pair(size: Any) -> tuple[int, int]:
    """(width, height). RangeError if they are not two numbers from 1 on."""
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or min(pair) < 1:
        raise RangeError(f"A size of images is a number or (width, height), each at least 1, got {size!r}.")
    return pair
