"""ConvNeXt: Z. Liu et al. 2022, "A ConvNet for the 2020s"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import dense, layer_norm
from ..network import Input, Network

EPS = 1e-6


def channels_last(x: Symbol) -> Symbol:
    return mx.sym.transpose(x, axes=(0, 2, 3, 1))


def channels_first(x: Symbol) -> Symbol:
    return mx.sym.transpose(x, axes=(0, 3, 1, 2))


def normed(x: Symbol, name: str) -> Symbol:
    """A layer norm over the channels of images."""
    return channels_first(layer_norm(channels_last(x), name, EPS))


def block(x: Symbol, width: int, name: str) -> Symbol:
    out = mx.sym.Convolution(
        x, num_filter=width, kernel=(7, 7), pad=(3, 3), num_group=width, name=f"{name}_depthwise"
    )
    out = layer_norm(channels_last(out), f"{name}_norm", EPS)
    out = dense(mx.sym.gelu(dense(out, 4 * width, f"{name}_wide")), width, f"{name}_narrow")
    out = mx.sym.broadcast_mul(out, mx.sym.Variable(f"{name}_last_gamma", shape=(width,)))
    return x + channels_first(out)


def symbol(layers: tuple[int, ...], width: int, classes: int, **_: Any) -> Symbol:
    x = mx.sym.Variable("data")
    for stage, count in enumerate(layers):
        side = 2 if stage else 4
        if stage:
            x = normed(x, f"stage{stage}_norm")
        x = mx.sym.Convolution(
            x, num_filter=width << stage, kernel=(side, side), stride=(side, side), name=f"stage{stage}_conv"
        )
        if not stage:
            x = normed(x, f"stage{stage}_norm")
        for i in range(count):
            x = block(x, width << stage, f"stage{stage}_block{i}")
    x = mx.sym.Flatten(mx.sym.Pooling(x, pool_type="avg", kernel=(1, 1), global_pool=True))
    return mx.sym.FullyConnected(layer_norm(x, "norm", EPS), num_hidden=classes, name="fc")


class Norm(nn.LayerNorm):
    """A layer norm over the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, EPS)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.last_gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        out = self.narrow(F.gelu(self.wide(out))) * self.last_gamma
        return x + out.permute(0, 3, 1, 2)


class Stage(nn.Module):
    def __init__(self, inputs: int, width: int, count: int, first: bool) -> None:
        super().__init__()
        side = 4 if first else 2
        self.first = first
        self.norm = Norm(width if first else inputs, EPS)
        self.conv = nn.Conv2d(inputs, width, side, side)
        self.blocks = [Block(width) for _ in range(count)]
        for i, one in enumerate(self.blocks):
            self.add_module(f"block{i}", one)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)) if self.first else self.conv(self.norm(x))
        for one in self.blocks:
            x = one(x)
        return x


class ConvNeXt(nn.Module):
    def __init__(self, layers: tuple[int, ...], width: int, classes: int, **_: Any) -> None:
        super().__init__()
        self.stages, inputs = [], 3
        for i, count in enumerate(layers):
            self.stages.append(Stage(inputs, width << i, count, not i))
            self.add_module(f"stage{i}", self.stages[-1])
            inputs = width << i
        self.norm, self.fc = nn.LayerNorm(inputs, EPS), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return self.fc(self.norm(x.mean((2, 3))))


NETWORK = Network(
    "ConvNeXt",
    symbol,
    ConvNeXt,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=4,
    sizes=dict(side=128, layers=(3, 3, 9, 3), width=48, classes=1000),
    quick=dict(side=64, layers=(1, 2), width=16, classes=10),
    layout="channels_last",
    rate=1e-3,
)
