"""Augmenters, which vary images one at a time. Called with an NDArray (H, W, C), they return another."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core.errors import ArgumentError, MissingMethodError
from ...ndarray import NDArray
from .crop import center_crop, random_crop, random_size_crop, Size
from .resize import imresize, interpolation, resize_short


class Augmenter:
    """Base of all augmenters. A subclass defines `__call__` and gives its parameters to `__init__`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {k: plain(v) for k, v in kwargs.items()}

    def dumps(self) -> Any:
        """The class's name in lower case and the parameters, as JSON."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: NDArray) -> NDArray:
        raise MissingMethodError(f"{type(self).__name__} must define __call__(src).")


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, NDArray)) else value


Step = Callable[[NDArray], NDArray]


class SequentialAug(Augmenter):
    """Several augmenters, one after the other."""

    def __init__(self, ts: Sequence[Step]) -> None:
        super().__init__()
        self.ts = ts

    def dumps(self) -> list[Any]:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]  # type: ignore[attr-defined]

    def __call__(self, src: NDArray) -> NDArray:
        for step in self.ts:
            src = step(src)
        return src


class RandomOrderAug(Augmenter):
    """Several augmenters, each time in another order."""

    def __init__(self, ts: Sequence[Step]) -> None:
        super().__init__()
        self.ts = list(ts)

    def dumps(self) -> list[Any]:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]  # type: ignore[attr-defined]

    def __call__(self, src: NDArray) -> NDArray:
        random.shuffle(self.ts)
        for step in self.ts:
            src = step(src)
        return src


class ResizeAug(Augmenter):
    """Resizes so that the shorter side is `size` long."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return resize_short(src, self.size, self.interp)


class _SizedAug(Augmenter):
    """Base: makes images of `size` = (width, height)."""

    def __init__(self, size: Size, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp


class ForceResizeAug(_SizedAug):
    """Resizes to `size` = (width, height)."""

    def __call__(self, src: NDArray) -> NDArray:
        w, h = self.size
        return imresize(src, w, h, interpolation(self.interp, (src.shape[0], src.shape[1], h, w)))


class RandomCropAug(_SizedAug):
    """Crops a part of `size` = (width, height) at a random place."""

    def __call__(self, src: NDArray) -> NDArray:
        return random_crop(src, self.size, self.interp)[0]


class CenterCropAug(_SizedAug):
    """Crops the part of `size` = (width, height) in the middle."""

    def __call__(self, src: NDArray) -> NDArray:
        return center_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """Crops a part of random area and aspect ratio and resizes it to `size`; see `random_size_crop`."""

    def __init__(
        self,
        size: Size,
        area: Any = None,
        ratio: Sequence[float] = (1.0, 1.0),
        interp: int = 2,
        **kwargs: Any,
    ) -> None:
        if "min_area" in kwargs:
            warnings.warn("min_area is deprecated: write area.", DeprecationWarning, stacklevel=2)
            area = kwargs.pop("min_area")
        if kwargs:
            raise ArgumentError(f"RandomSizedCropAug has no parameter {next(iter(kwargs))!r}.")
        if area is None:
            raise ArgumentError("RandomSizedCropAug needs the parameter 'area'.")
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: NDArray) -> NDArray:
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Mirrors left and right, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return nd.flip(src, axis=1) if random.random() < self.p else src


class CastAug(Augmenter):
    """Converts to another dtype, float32."""

    def __init__(self, typ: str = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        return src.astype(self.typ)
