"""DenseNet-121: G. Huang et al. 2017, "Densely connected convolutional networks"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import classes_of, mean_over_image

GROWTH = 32


def activated(x: Symbol, name: str) -> Symbol:
    x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=name)
    return mx.sym.Activation(x, act_type="relu")


def convolution(x: Symbol, filters: int, kernel: int, name: str, stride: int = 1) -> Symbol:
    size, pad = (kernel, kernel), (kernel // 2, kernel // 2)
    return mx.sym.Convolution(
        x, num_filter=filters, kernel=size, stride=(stride, stride), pad=pad, no_bias=True, name=name
    )


def symbol(layers: tuple[int, ...], classes: int, **_: Any) -> Symbol:
    width = 64
    x = activated(convolution(mx.sym.Variable("data"), width, 7, "stem_conv", 2), "stem_bn")
    x = mx.sym.Pooling(x, pool_type="max", kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    for b, count in enumerate(layers):
        for i in range(count):
            name = f"block{b}_layer{i}"
            out = convolution(activated(x, f"{name}_bn1"), 4 * GROWTH, 1, f"{name}_conv1")
            out = convolution(activated(out, f"{name}_bn2"), GROWTH, 3, f"{name}_conv2")
            x = mx.sym.Concat(x, out, dim=1)
            width += GROWTH
        x = activated(x, f"block{b}_bn")
        if b < len(layers) - 1:
            width //= 2
            x = convolution(x, width, 1, f"block{b}_conv")
            x = mx.sym.Pooling(x, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    return classes_of(x, classes)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * GROWTH, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.bn1(x), inplace=True))
        return torch.cat([x, self.conv2(F.relu(self.bn2(out), inplace=True))], 1)


class Block(nn.Module):
    def __init__(self, width: int, count: int, last: bool) -> None:
        super().__init__()
        self.layers = [Layer(width + i * GROWTH) for i in range(count)]
        for i, layer in enumerate(self.layers):
            self.add_module(f"layer{i}", layer)
        width += count * GROWTH
        self.bn = nn.BatchNorm2d(width)
        self.conv = None if last else nn.Conv2d(width, width // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        x = F.relu(self.bn(x), inplace=True)
        return x if self.conv is None else F.avg_pool2d(self.conv(x), 2)


class DenseNet(nn.Module):
    def __init__(self, layers: tuple[int, ...], classes: int, **_: Any) -> None:
        super().__init__()
        width = 64
        self.stem_conv, self.stem_bn = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.blocks = []
        for b, count in enumerate(layers):
            last = b == len(layers) - 1
            self.blocks.append(Block(width, count, last))
            self.add_module(f"block{b}", self.blocks[-1])
            width += count * GROWTH
            width = width if last else width // 2
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem_bn(self.stem_conv(x)), inplace=True), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.fc(mean_over_image(x))


NETWORK = Network(
    "DenseNet-121",
    symbol,
    DenseNet,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=4,
    sizes=dict(side=96, layers=(6, 12, 24, 16), classes=1000),
    quick=dict(batch=4, side=64, layers=(2, 3), classes=10),
    layout="channels_last",
    rate=1e-5,
    bound=0.1,
)
