"""ResNet, versions 1 and 2. He et al. 2015 and 2016, "Deep residual learning", "Identity mappings".

Version 2 has normalization and activation before each convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import RangeError
from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME


def _conv3x3(channels: int, strides: int, inside: int) -> nn.Conv2D:
    return nn.Conv2D(channels, 3, strides, 1, use_bias=False, in_channels=inside)


class _PostActivation(HybridBlock):
    """A block of version 1: relu(body(x) + x), x through a convolution if its shape is another."""

    def _shortcut(self, channels: int, stride: int, downsample: bool, inside: int) -> None:
        self.downsample = None
        if downsample:
            self.downsample = nn.HybridSequential(prefix="")
            self.downsample.add(
                nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=inside), nn.BatchNorm()
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        rest = x if self.downsample is None else self.downsample(x)
        return F.Activation(rest + self.body(x), act_type="relu")  # type: ignore[attr-defined]


class BasicBlockV1(_PostActivation):
    """Two 3x3 convolutions."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.body = nn.HybridSequential(prefix="")
        self.body.add(_conv3x3(channels, stride, in_channels), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(_conv3x3(channels, 1, channels), nn.BatchNorm())
        self._shortcut(channels, stride, downsample, in_channels)


class BottleneckV1(_PostActivation):
    """A 1x1, a 3x3 and a 1x1 convolution; the middle one has a quarter of the channels."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        inner = channels // 4
        self.body = nn.HybridSequential(prefix="")
        self.body.add(nn.Conv2D(inner, 1, stride), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(_conv3x3(inner, 1, inner), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(nn.Conv2D(channels, 1, 1), nn.BatchNorm())
        self._shortcut(channels, stride, downsample, in_channels)


class _PreActivation(HybridBlock):
    """A block of version 2: convolutions of relu(norm(x)), plus x, or a convolution of relu(norm(x))."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        rest = x
        for i, (norm, convolution) in enumerate(self._pairs):  # type: ignore[attr-defined]
            x = F.Activation(norm(x), act_type="relu")
            if i == 0 and self.downsample is not None:  # type: ignore[attr-defined]
                rest = self.downsample(x)  # type: ignore[attr-defined]
            x = convolution(x)
        return x + rest


class BasicBlockV2(_PreActivation):
    """Two 3x3 convolutions."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv3x3(channels, stride, in_channels)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels, 1, channels)
        self._pairs = ((self.bn1, self.conv1), (self.bn2, self.conv2))
        self.downsample = (
            nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels) if downsample else None
        )


class BottleneckV2(_PreActivation):
    """A 1x1, a 3x3 and a 1x1 convolution; the middle one has a quarter of the channels."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        inner = channels // 4
        self.bn1 = nn.BatchNorm()
        self.conv1 = nn.Conv2D(inner, 1, 1, use_bias=False)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(inner, stride, inner)
        self.bn3 = nn.BatchNorm()
        self.conv3 = nn.Conv2D(channels, 1, 1, use_bias=False)
        self._pairs = ((self.bn1, self.conv1), (self.bn2, self.conv2), (self.bn3, self.conv3))
        self.downsample = (
            nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels) if downsample else None
        )


class _ResNet(HybridBlock):
    """What both versions have in common."""

    features: nn.HybridSequential
    output: nn.Dense

    def _add_stem(self, channels: int, thumbnail: bool) -> None:
        """The first convolution; of small images nothing is thrown away there."""
        if thumbnail:
            self.features.add(_conv3x3(channels, 1, 0))
        else:
            self.features.add(nn.Conv2D(channels, 7, 2, 3, use_bias=False), nn.BatchNorm())
            self.features.add(nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))

    def _add_stages(self, block: Any, layers: Sequence[int], channels: Sequence[int]) -> None:
        for i, count in enumerate(layers):
            inside, width = channels[i], channels[i + 1]
            stage = nn.HybridSequential(prefix=f"stage{i + 1}_")
            with stage.name_scope():
                stage.add(block(width, 1 if i == 0 else 2, width != inside, in_channels=inside, prefix=""))
                for _ in range(count - 1):
                    stage.add(block(width, 1, False, in_channels=width, prefix=""))
            self.features.add(stage)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


class ResNetV1(_ResNet):
    """x: (N, 3, 224, 224) -> (N, classes). thumbnail: for small images."""

    def __init__(
        self,
        block: Any,
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self._add_stem(channels[0], thumbnail)
            self._add_stages(block, layers, channels)
            self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.Dense(classes, in_units=channels[-1])


class ResNetV2(_ResNet):
    """x: (N, 3, 224, 224) -> (N, classes). thumbnail: for small images."""

    def __init__(
        self,
        block: Any,
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.BatchNorm(scale=False, center=False))
            self._add_stem(channels[0], thumbnail)
            self._add_stages(block, layers, channels)
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes, in_units=channels[-1])


_NARROW, _WIDE = (64, 64, 128, 256, 512), (64, 256, 512, 1024, 2048)
_SPECS = {
    18: (False, (2, 2, 2, 2), _NARROW),
    34: (False, (3, 4, 6, 3), _NARROW),
    50: (True, (3, 4, 6, 3), _WIDE),
    101: (True, (3, 4, 23, 3), _WIDE),
    152: (True, (3, 8, 36, 3), _WIDE),
}
_VERSIONS = {1: (ResNetV1, BasicBlockV1, BottleneckV1), 2: (ResNetV2, BasicBlockV2, BottleneckV2)}


def get_resnet(
    version: int, num_layers: int, pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any
) -> Any:
    """ResNet of version 1 or 2, of 18, 34, 50, 101 or 152 layers."""
    if num_layers not in _SPECS or version not in _VERSIONS:
        raise RangeError(
            f"ResNet has {', '.join(map(str, _SPECS))} layers and version 1 or 2, got "
            f"num_layers={num_layers}, "
            f"version={version}."
        )
    deep, layers, channels = _SPECS[num_layers]
    whole, basic, bottleneck = _VERSIONS[version]
    net = whole(bottleneck if deep else basic, layers, channels, **kwargs)
    return filled(net, f"resnet{num_layers}_v{version}", pretrained, ctx, root)


def resnet18_v1(**kwargs: Any) -> Any:
    """ResNet of version 1 and 18 layers."""
    return get_resnet(1, 18, **kwargs)


def resnet34_v1(**kwargs: Any) -> Any:
    """ResNet of version 1 and 34 layers."""
    return get_resnet(1, 34, **kwargs)


def resnet50_v1(**kwargs: Any) -> Any:
    """ResNet of version 1 and 50 layers."""
    return get_resnet(1, 50, **kwargs)


def resnet101_v1(**kwargs: Any) -> Any:
    """ResNet of version 1 and 101 layers."""
    return get_resnet(1, 101, **kwargs)


def resnet152_v1(**kwargs: Any) -> Any:
    """ResNet of version 1 and 152 layers."""
    return get_resnet(1, 152, **kwargs)


def resnet18_v2(**kwargs: Any) -> Any:
    """ResNet of version 2 and 18 layers."""
    return get_resnet(2, 18, **kwargs)


def resnet34_v2(**kwargs: Any) -> Any:
    """ResNet of version 2 and 34 layers."""
    return get_resnet(2, 34, **kwargs)


def resnet50_v2(**kwargs: Any) -> Any:
    """ResNet of version 2 and 50 layers."""
    return get_resnet(2, 50, **kwargs)


def resnet101_v2(**kwargs: Any) -> Any:
    """ResNet of version 2 and 101 layers."""
    return get_resnet(2, 101, **kwargs)


def resnet152_v2(**kwargs: Any) -> Any:
    """ResNet of version 2 and 152 layers."""
    return get_resnet(2, 152, **kwargs)
