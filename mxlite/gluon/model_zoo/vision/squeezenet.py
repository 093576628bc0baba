"""SqueezeNet. Iandola et al. 2016, "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters"."""

from __future__ import annotations

from typing import Any

from ....core.errors import RangeError
from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME
from .concurrent import beside, row

_STAGES = {
    "1.0": ((96, 7), ((16, 16, 32), (32, 48, 48, 64), (64,))),
    "1.1": ((64, 3), ((16, 16), (32, 32), (48, 48, 64, 64))),
}
"""Channels and kernel of the first convolution; channels that the fire modules of each stage squeeze to."""


def _convolution(channels: int, kernel: int, padding: int = 0) -> nn.HybridSequential:
    return row(nn.Conv2D(channels, kernel, padding=padding), nn.Activation("relu"))


def _fire(squeezed: int) -> nn.HybridSequential:
    """A fire module: few channels, then four times as many by 1x1 and as many by 3x3."""
    wide = 4 * squeezed
    return row(_convolution(squeezed, 1), beside(_convolution(wide, 1), _convolution(wide, 3, 1)))


class SqueezeNet(HybridBlock):
    """x: (N, 3, 224, 224) -> (N, classes). version: "1.0" or "1.1"."""

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if version not in _STAGES:
            raise RangeError(f"SqueezeNet has version {' and '.join(_STAGES)}, got version={version!r}.")
        (channels, kernel), stages = _STAGES[version]
        with self.name_scope():
            self.features = row(nn.Conv2D(channels, kernel, strides=2), nn.Activation("relu"))
            for stage in stages:
                self.features.add(nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True))
                self.features.add(*map(_fire, stage))
            self.features.add(nn.Dropout(0.5))
            self.output = row(nn.Conv2D(classes, 1), nn.Activation("relu"), nn.AvgPool2D(13), nn.Flatten())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def get_squeezenet(
    version: str, pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any
) -> SqueezeNet:
    """SqueezeNet of version "1.0" or "1.1"."""
    made: SqueezeNet = filled(SqueezeNet(version, **kwargs), f"squeezenet{version}", pretrained, ctx, root)
    return made


def squeezenet1_0(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.0."""
    return get_squeezenet("1.0", **kwargs)


def squeezenet1_1(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.1, which takes fewer operations than 1.0."""
    return get_squeezenet("1.1", **kwargs)
