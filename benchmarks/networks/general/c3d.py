"""A network for videos: D. Tran et al. 2015, "Learning spatiotemporal features with 3D convolutional
networks" (C3D), with batch normalization and fewer filters."""

from __future__ import annotations

from typing import Any

from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network

STAGES = (1, 1, 2, 2)
"""Convolutions of each; filters double from one to the next."""


def symbol(classes: int, width: int, hidden: int, **_: Any) -> Symbol:
    x = mx.sym.Variable("data")
    for stage, count in enumerate(STAGES):
        for i in range(count):
            name = f"stage{stage}_{i}"
            x = mx.sym.Convolution(
                x,
                num_filter=width << stage,
                kernel=(3, 3, 3),
                pad=(1, 1, 1),
                no_bias=True,
                name=f"{name}_conv",
            )
            x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"{name}_bn")
            x = mx.sym.Activation(x, act_type="relu")
        size = (2, 2, 2) if stage else (1, 2, 2)
        x = mx.sym.Pooling(x, pool_type="max", kernel=size, stride=size)
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=hidden, name="fc1")
    return mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu"), num_hidden=classes, name="fc2")


class Layer(nn.Module):
    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(inputs, filters, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm3d(filters)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class C3D(nn.Module):
    def __init__(self, frames: int, side: int, classes: int, width: int, hidden: int) -> None:
        super().__init__()
        inputs = 3
        for stage, count in enumerate(STAGES):
            for i in range(count):
                self.add_module(f"stage{stage}_{i}", Layer(inputs, width << stage))
                inputs = width << stage
        places = (frames >> len(STAGES) - 1) * (side >> len(STAGES)) ** 2
        self.fc1, self.fc2 = nn.Linear(inputs * places, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        for stage, count in enumerate(STAGES):
            for i in range(count):
                x = getattr(self, f"stage{stage}_{i}")(x)
            x = F.max_pool3d(x, 2 if stage else (1, 2, 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1)), inplace=True))


def inputs(batch: int, frames: int, side: int, **_: Any) -> dict[str, Input]:
    return {"data": Input((batch, 3, frames, side, side))}


NETWORK = Network(
    "C3D",
    symbol,
    C3D,
    inputs,
    batch=2,
    sizes=dict(frames=8, side=64, classes=101, width=32, hidden=512),
    quick=dict(frames=8, side=32, classes=10, width=8, hidden=16),
    layout="channels_last_3d",
    rate=1e-5,
    bound=0.1,
)
