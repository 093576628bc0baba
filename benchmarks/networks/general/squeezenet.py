"""SqueezeNet 1.1: F. Iandola et al. 2016, "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import mean_over_image

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""(squeezed, filters of each half) of each fire module."""
POOLED = (2, 4)  # max pooling stands before these


def rectified(x: Symbol, filters: int, kernel: int, name: str, stride: int = 1, pad: int = 0) -> Symbol:
    x = mx.sym.Convolution(
        x, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride), pad=(pad, pad), name=name
    )
    return mx.sym.Activation(x, act_type="relu")


def pooled(x: Symbol) -> Symbol:
    return mx.sym.Pooling(x, pool_type="max", kernel=(3, 3), stride=(2, 2), pooling_convention="full")


def symbol(classes: int, **_: Any) -> Symbol:
    x = pooled(rectified(mx.sym.Variable("data"), 64, 3, "stem", 2))
    for i, (squeezed, filters) in enumerate(FIRES):
        x = rectified(pooled(x) if i in POOLED else x, squeezed, 1, f"fire{i}_squeeze")
        one = rectified(x, filters, 1, f"fire{i}_one")
        three = rectified(x, filters, 3, f"fire{i}_three", pad=1)
        x = mx.sym.Concat(one, three, dim=1)
    x = rectified(x, classes, 1, "score")
    return mx.sym.Flatten(mx.sym.Pooling(x, pool_type="avg", kernel=(1, 1), global_pool=True))


class Fire(nn.Module):
    def __init__(self, inputs: int, squeezed: int, filters: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, filters, 1), nn.Conv2d(squeezed, filters, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x), inplace=True)
        return torch.cat([F.relu(self.one(x), inplace=True), F.relu(self.three(x), inplace=True)], 1)


class SqueezeNet(nn.Module):
    def __init__(self, classes: int, **_: Any) -> None:
        super().__init__()
        self.stem, inputs = nn.Conv2d(3, 64, 3, 2), 64
        for i, (squeezed, filters) in enumerate(FIRES):
            self.add_module(f"fire{i}", Fire(inputs, squeezed, filters))
            inputs = 2 * filters
        self.score = nn.Conv2d(inputs, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x), inplace=True), 3, 2, ceil_mode=True)
        for i in range(len(FIRES)):
            x = F.max_pool2d(x, 3, 2, ceil_mode=True) if i in POOLED else x
            x = getattr(self, f"fire{i}")(x)
        return mean_over_image(F.relu(self.score(x), inplace=True))


NETWORK = Network(
    "SqueezeNet",
    symbol,
    SqueezeNet,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=8,
    sizes=dict(side=160, classes=1000),
    quick=dict(side=64, classes=10),
    layout="channels_last",
    rate=1e-5,
    bound=0.1,
)
