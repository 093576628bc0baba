"""MobileNet 2. Sandler et al. 2018, "MobileNetV2: inverted residuals and linear bottlenecks"."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME

_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, bottlenecks and strides of the first of them, for each stage."""


class RELU6(HybridBlock):
    """x cut to 0 ... 6."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.clip(x, 0, 6, name="relu6")


def _add(
    row: nn.HybridSequential,
    channels: int,
    kernel: int = 1,
    strides: int = 1,
    groups: int = 1,
    active: bool = True,
) -> None:
    """Append a convolution with BatchNorm, and with RELU6 if it is active."""
    convolution = nn.Conv2D(channels, kernel, strides, kernel // 2, groups=groups, use_bias=False)
    row.add(convolution, nn.BatchNorm(), *([RELU6()] if active else []))


class LinearBottleneck(HybridBlock):
    """An inverted residual: `t` times the channels inside, and no activation between bottlenecks."""

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        inside = in_channels * t
        with self.name_scope():
            self.out = nn.HybridSequential()
            _add(self.out, inside)
            _add(self.out, inside, 3, stride, groups=inside)
            _add(self.out, channels, active=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNetV2(HybridBlock):
    """x: (N, 3, 224, 224) -> (N, classes). multiplier: a factor on all numbers of channels."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                inside = int(32 * multiplier)
                _add(self.features, inside, 3, 2)
                for expansion, usual, count, strides in _STAGES:
                    channels = int(usual * multiplier)
                    for at in range(count):
                        stride = strides if at == 0 else 1
                        self.features.add(LinearBottleneck(inside, channels, expansion, stride))
                        inside = channels
                _add(self.features, int(1280 * max(multiplier, 1.0)))
                self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def get_mobilenet_v2(
    multiplier: float, pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any
) -> MobileNetV2:
    """MobileNet 2 with so many times the usual channels."""
    net = MobileNetV2(multiplier, **kwargs)
    made: MobileNetV2 = filled(net, f"mobilenetv2_{multiplier}", pretrained, ctx, root)
    return made


def mobilenet_v2_1_0(**kwargs: Any) -> MobileNetV2:
    """MobileNet 2."""
    return get_mobilenet_v2(1.0, **kwargs)


def mobilenet_v2_0_75(**kwargs: Any) -> MobileNetV2:
    """MobileNet 2 with 3/4 of its channels."""
    return get_mobilenet_v2(0.75, **kwargs)


def mobilenet_v2_0_5(**kwargs: Any) -> MobileNetV2:
    """MobileNet 2 with half of its channels."""
    return get_mobilenet_v2(0.5, **kwargs)


def mobilenet_v2_0_25(**kwargs: Any) -> MobileNetV2:
    """MobileNet 2 with a quarter of its channels."""
    return get_mobilenet_v2(0.25, **kwargs)
