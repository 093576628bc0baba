"""MobileNet-v2: M. Sandler et al. 2018, "MobileNetV2: inverted residuals and linear bottlenecks"."""

from __future__ import annotations

from typing import Any

from torch import nn, Tensor

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import classes_of, mean_over_image, Unit, unit

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""(expansion, filters, blocks, stride of the first) of each stage."""


def blocks(inputs: int = 32) -> list[tuple[int, int, int, int]]:
    """(inputs, inner filters, filters, stride) of each block."""
    found = []
    for expansion, filters, count, first in STAGES:
        for i in range(count):
            found.append((inputs, inputs * expansion, filters, 1 if i else first))
            inputs = filters
    return found


def symbol(classes: int, **_: Any) -> Symbol:
    x = unit(mx.sym.Variable("data"), 32, 3, "stem", 2, act="relu6")
    for i, (inputs, inner, filters, stride) in enumerate(blocks()):
        name, out = f"block{i}", x
        if inner > inputs:
            out = unit(out, inner, 1, f"{name}_expand", act="relu6")
        out = unit(out, inner, 3, f"{name}_depthwise", stride, inner, "relu6")
        out = unit(out, filters, 1, f"{name}_project", act="")
        x = x + out if stride == 1 and inputs == filters else out
    return classes_of(unit(x, 1280, 1, "last", act="relu6"), classes)


class Block(nn.Module):
    def __init__(self, inputs: int, inner: int, filters: int, stride: int) -> None:
        super().__init__()
        self.expand = Unit(inputs, inner, 1, act="relu6") if inner > inputs else nn.Identity()
        self.depthwise = Unit(inner, inner, 3, stride, inner, "relu6")
        self.project = Unit(inner, filters, 1, act="")
        self.residual = stride == 1 and inputs == filters

    def forward(self, x: Tensor) -> Tensor:
        out = self.project(self.depthwise(self.expand(x)))
        return x + out if self.residual else out


class MobileNet(nn.Module):
    def __init__(self, classes: int, **_: Any) -> None:
        super().__init__()
        self.stem = Unit(3, 32, 3, 2, act="relu6")
        self.count = len(blocks())
        for i, sizes in enumerate(blocks()):
            self.add_module(f"block{i}", Block(*sizes))
        self.last = Unit(320, 1280, 1, act="relu6")
        self.fc = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i in range(self.count):
            x = getattr(self, f"block{i}")(x)
        return self.fc(mean_over_image(self.last(x)))


NETWORK = Network(
    "MobileNet-v2",
    symbol,
    MobileNet,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=8,
    sizes=dict(side=128, classes=1000),
    quick=dict(batch=4, side=64, classes=10),
    layout="channels_last",
    rate=1e-5,
    bound=0.1,
)
