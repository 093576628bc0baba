"""ShuffleNet-v2: N. Ma et al. 2018, "ShuffleNet V2: practical guidelines for efficient CNN architecture
design"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import classes_of, mean_over_image, Unit, unit

STAGES = ((116, 4), (232, 8), (464, 4))
"""(filters, blocks) of each stage; the first block of each has stride 2."""
FIRST, LAST = 24, 1024


def shuffled(x: Symbol) -> Symbol:
    """Channels of both halves in turns."""
    x = mx.sym.SwapAxis(mx.sym.Reshape(x, shape=(0, -4, 2, -1, 0, 0)), dim1=1, dim2=2)
    return mx.sym.Reshape(x, shape=(0, -3, 0, 0))


def branch(x: Symbol, filters: int, inputs: int, name: str, stride: int) -> Symbol:
    x = unit(x, filters, 1, f"{name}_in")
    x = unit(x, filters, 3, f"{name}_depthwise", stride, filters, "")
    return unit(x, filters, 1, f"{name}_out")


def symbol(classes: int, **_: Any) -> Symbol:
    x = unit(mx.sym.Variable("data"), FIRST, 3, "stem", 2)
    x = mx.sym.Pooling(x, pool_type="max", kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    inputs = FIRST
    for stage, (filters, count) in enumerate(STAGES):
        for i in range(count):
            name, half = f"stage{stage}_block{i}", filters // 2
            if i:
                left, right = mx.sym.SliceChannel(x, num_outputs=2, axis=1)
                right = branch(right, half, half, f"{name}_right", 1)
            else:
                left = unit(x, inputs, 3, f"{name}_left_depthwise", 2, inputs, "")
                left = unit(left, half, 1, f"{name}_left_out")
                right = branch(x, half, inputs, f"{name}_right", 2)
            x = shuffled(mx.sym.Concat(left, right, dim=1))
        inputs = filters
    return classes_of(unit(x, LAST, 1, "last"), classes)


class Left(nn.Module):
    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.depthwise = Unit(inputs, inputs, 3, 2, inputs, "")
        self.out = Unit(inputs, filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.depthwise(x))


class Right(nn.Module):
    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        setattr(self, "in", Unit(inputs, filters, 1))
        self.depthwise = Unit(filters, filters, 3, stride, filters, "")
        self.out = Unit(filters, filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.depthwise(getattr(self, "in")(x)))


class Block(nn.Module):
    def __init__(self, inputs: int, filters: int, first: bool) -> None:
        super().__init__()
        half = filters // 2
        self.left = Left(inputs, half) if first else None
        self.right = Right(inputs if first else half, half, 2 if first else 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1) if self.left is None else (self.left(x), x)
        x = torch.cat([left, self.right(right)], 1)
        return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class ShuffleNet(nn.Module):
    def __init__(self, classes: int, **_: Any) -> None:
        super().__init__()
        self.stem = Unit(3, FIRST, 3, 2)
        self.blocks, inputs = [], FIRST
        for stage, (filters, count) in enumerate(STAGES):
            for i in range(count):
                self.blocks.append(Block(inputs, filters, not i))
                self.add_module(f"stage{stage}_block{i}", self.blocks[-1])
                inputs = filters
        self.last, self.fc = Unit(inputs, LAST, 1), nn.Linear(LAST, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.fc(mean_over_image(self.last(x)))


NETWORK = Network(
    "ShuffleNet-v2",
    symbol,
    ShuffleNet,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=16,
    sizes=dict(side=128, classes=1000),
    quick=dict(batch=4, side=64, classes=10),
    layout="channels_last",
    rate=1e-5,
    bound=0.1,
)
