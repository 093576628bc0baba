"""ResNeXt-50, 32x4d: S. Xie et al. 2017, "Aggregated residual transformations for deep neural networks"."""

from __future__ import annotations

from typing import Any

from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import classes_of, mean_over_image, Unit, unit

GROUPS, FIRST = 32, 128


def blocks(layers: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(inputs, width, stride) of each block; it has 2 * width outputs."""
    found, inputs = [], 64
    for stage, count in enumerate(layers):
        width = FIRST << stage
        for i in range(count):
            found.append((inputs, width, 2 if stage and not i else 1))
            inputs = 2 * width
    return found


def symbol(layers: tuple[int, ...], classes: int, **_: Any) -> Symbol:
    x = unit(mx.sym.Variable("data"), 64, 7, "stem", 2)
    x = mx.sym.Pooling(x, pool_type="max", kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    for i, (inputs, width, stride) in enumerate(blocks(layers)):
        name = f"block{i}"
        out = unit(x, width, 1, f"{name}_in")
        out = unit(out, width, 3, f"{name}_grouped", stride, GROUPS)
        out = unit(out, 2 * width, 1, f"{name}_out", act="")
        if inputs != 2 * width:
            x = unit(x, 2 * width, 1, f"{name}_skip", stride, act="")
        x = mx.sym.Activation(x + out, act_type="relu")
    return classes_of(x, classes)


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        setattr(self, "in", Unit(inputs, width, 1))
        self.grouped = Unit(width, width, 3, stride, GROUPS)
        self.out = Unit(width, 2 * width, 1, act="")
        self.skip = Unit(inputs, 2 * width, 1, stride, act="") if inputs != 2 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.out(self.grouped(getattr(self, "in")(x)))
        out += self.skip(x)
        return F.relu(out, inplace=True)


class ResNeXt(nn.Module):
    def __init__(self, layers: tuple[int, ...], classes: int, **_: Any) -> None:
        super().__init__()
        self.stem, self.count = Unit(3, 64, 7, 2), sum(layers)
        for i, sizes in enumerate(blocks(layers)):
            self.add_module(f"block{i}", Block(*sizes))
        self.fc = nn.Linear(2 * FIRST << (len(layers) - 1), classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for i in range(self.count):
            x = getattr(self, f"block{i}")(x)
        return self.fc(mean_over_image(x))


NETWORK = Network(
    "ResNeXt-50",
    symbol,
    ResNeXt,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=2,
    sizes=dict(side=128, layers=(3, 4, 6, 3), classes=1000),
    quick=dict(batch=4, side=64, layers=(1, 2), classes=10),
    layout="channels_last",
    rate=1e-8,
    bound=0.1,
)
