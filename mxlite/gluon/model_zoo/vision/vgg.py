"""VGG. Simonyan and Zisserman 2014, "Very deep convolutional networks for large-scale image recognition"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import RangeError
from ....module.initial import initializer
from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME

_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_FILTERS = (64, 128, 256, 512, 512)


class VGG(HybridBlock):
    """x: (N, 3, 224, 224) -> (N, classes). layers, filters: convolutions of each stage, and their
    channels.
    """

    def __init__(
        self,
        layers: Sequence[int],
        filters: Sequence[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            for count, channels in zip(layers, filters):
                for _ in range(count):
                    init = initializer.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
                    self.features.add(nn.Conv2D(channels, 3, padding=1, weight_initializer=init))
                    if batch_norm:
                        self.features.add(nn.BatchNorm())
                    self.features.add(nn.Activation("relu"))
                self.features.add(nn.MaxPool2D(strides=2))
            for _ in range(2):
                self.features.add(
                    nn.Dense(4096, activation="relu", weight_initializer="normal"), nn.Dropout(0.5)
                )
            self.output = nn.Dense(classes, weight_initializer="normal")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def get_vgg(
    num_layers: int, pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any
) -> VGG:
    """VGG of 11, 13, 16 or 19 layers; `batch_norm=True` for one with BatchNorm."""
    if num_layers not in _LAYERS:
        raise RangeError(f"VGG has {', '.join(map(str, _LAYERS))} layers, got num_layers={num_layers}.")
    name = f"vgg{num_layers}{'_bn' if kwargs.get('batch_norm') else ''}"
    made: VGG = filled(VGG(_LAYERS[num_layers], _FILTERS, **kwargs), name, pretrained, ctx, root)
    return made


def vgg11(**kwargs: Any) -> VGG:
    """VGG of 11 layers."""
    return get_vgg(11, **kwargs)


def vgg13(**kwargs: Any) -> VGG:
    """VGG of 13 layers."""
    return get_vgg(13, **kwargs)


def vgg16(**kwargs: Any) -> VGG:
    """VGG of 16 layers."""
    return get_vgg(16, **kwargs)


def vgg19(**kwargs: Any) -> VGG:
    """VGG of 19 layers."""
    return get_vgg(19, **kwargs)


def vgg11_bn(**kwargs: Any) -> VGG:
    """VGG of 11 layers with BatchNorm."""
    return get_vgg(11, batch_norm=True, **kwargs)


def vgg13_bn(**kwargs: Any) -> VGG:
    """VGG of 13 layers with BatchNorm."""
    return get_vgg(13, batch_norm=True, **kwargs)


def vgg16_bn(**kwargs: Any) -> VGG:
    """VGG of 16 layers with BatchNorm."""
    return get_vgg(16, batch_norm=True, **kwargs)


def vgg19_bn(**kwargs: Any) -> VGG:
    """VGG of 19 layers with BatchNorm."""
    return get_vgg(19, batch_norm=True, **kwargs)
