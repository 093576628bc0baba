"""MobileNet. Howard et al. 2017, "MobileNets: efficient convolutional neural networks for mobile vision"."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME

_STEPS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


class MobileNet(HybridBlock):
    """x: (N, 3, 224, 224) -> (N, classes). multiplier: a factor on all numbers of channels."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)

        def add(channels: int, kernel: int, strides: int, padding: int, groups: int = 1) -> None:
            convolution = nn.Conv2D(channels, kernel, strides, padding, groups=groups, use_bias=False)
            self.features.add(convolution, nn.BatchNorm(), nn.Activation("relu"))

        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                inside = int(32 * multiplier)
                add(inside, 3, 2, 1)
                for channels, strides in _STEPS:
                    add(inside, 3, strides, 1, groups=inside)
                    inside = int(channels * multiplier)
                    add(inside, 1, 1, 0)
                self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def get_mobilenet(
    multiplier: float, pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any
) -> MobileNet:
    """MobileNet with so many times the usual channels."""
    made: MobileNet = filled(MobileNet(multiplier, **kwargs), f"mobilenet{multiplier}", pretrained, ctx, root)
    return made


def mobilenet1_0(**kwargs: Any) -> MobileNet:
    """MobileNet."""
    return get_mobilenet(1.0, **kwargs)


def mobilenet0_75(**kwargs: Any) -> MobileNet:
    """MobileNet with 3/4 of its channels."""
    return get_mobilenet(0.75, **kwargs)


def mobilenet0_5(**kwargs: Any) -> MobileNet:
    """MobileNet with half of its channels."""
    return get_mobilenet(0.5, **kwargs)


def mobilenet0_25(**kwargs: Any) -> MobileNet:
    """MobileNet with a quarter of its channels."""
    return get_mobilenet(0.25, **kwargs)
