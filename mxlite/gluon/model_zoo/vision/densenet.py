"""DenseNet. Huang et al. 2017, "Densely connected convolutional networks"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import RangeError
from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ...contrib.nn import Identity
from ..model_store import filled, HOME
from .concurrent import beside, row

_SPECS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
"""First channels, channels that a layer adds, and layers of each stage, by number of layers."""


def _preactivated(channels: int, kernel: int) -> list[HybridBlock]:
    """BatchNorm, ReLU and a convolution that keeps the size."""
    convolution = nn.Conv2D(channels, kernel, padding=kernel // 2, use_bias=False)
    return [nn.BatchNorm(), nn.Activation("relu"), convolution]


class DenseNet(HybridBlock):
    """x: (N, 3, 224, 224) -> (N, classes). growth_rate: channels that each layer adds; block_config: layers
    of each stage; bn_size: a layer's inner channels, in growth rates.
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: Sequence[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

        def layer() -> HybridBlock:
            new = row(*_preactivated(bn_size * growth_rate, 1), *_preactivated(growth_rate, 3))
            if dropout:
                new.add(nn.Dropout(dropout))
            return beside(Identity(), new)

        with self.name_scope():
            self.features = row(
                nn.Conv2D(num_init_features, 7, strides=2, padding=3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(pool_size=3, strides=2, padding=1),
            )
            channels = num_init_features
            for at, count in enumerate(block_config, 1):
                stage = nn.HybridSequential(prefix=f"stage{at}_")
                with stage.name_scope():
                    stage.add(*(layer() for _ in range(count)))
                self.features.add(stage)
                channels += count * growth_rate
                if at < len(block_config):
                    channels //= 2
                    self.features.add(row(*_preactivated(channels, 1), nn.AvgPool2D(2, 2)))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(7), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def get_densenet(
    num_layers: int, pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any
) -> DenseNet:
    """DenseNet of 121, 161, 169 or 201 layers."""
    if num_layers not in _SPECS:
        raise RangeError(f"DenseNet has {', '.join(map(str, _SPECS))} layers, got num_layers={num_layers}.")
    net = DenseNet(*_SPECS[num_layers], **kwargs)
    made: DenseNet = filled(net, f"densenet{num_layers}", pretrained, ctx, root)
    return made


def densenet121(**kwargs: Any) -> DenseNet:
    """DenseNet of 121 layers."""
    return get_densenet(121, **kwargs)


def densenet161(**kwargs: Any) -> DenseNet:
    """DenseNet of 161 layers."""
    return get_densenet(161, **kwargs)


def densenet169(**kwargs: Any) -> DenseNet:
    """DenseNet of 169 layers."""
    return get_densenet(169, **kwargs)


def densenet201(**kwargs: Any) -> DenseNet:
    """DenseNet of 201 layers."""
    return get_densenet(201, **kwargs)
