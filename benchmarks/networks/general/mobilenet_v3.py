"""MobileNet-v3, large: A. Howard et al. 2019, "Searching for MobileNetV3"."""

from __future__ import annotations

from typing import Any

from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import Gated, gated, mean_over_image, Unit, unit

BLOCKS = (
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hard_swish", 2),
    (3, 200, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 480, 112, True, "hard_swish", 1),
    (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2),
    (5, 960, 160, True, "hard_swish", 1),
    (5, 960, 160, True, "hard_swish", 1),
)
"""(kernel, inner filters, filters, gates, activation, stride)."""


def squeezed(inner: int) -> int:
    """Channels from which the gates are computed."""
    return (inner // 4 + 4) // 8 * 8


def symbol(classes: int, **_: Any) -> Symbol:
    x = unit(mx.sym.Variable("data"), 16, 3, "stem", 2, act="hard_swish")
    inputs = 16
    for i, (kernel, inner, filters, gates, act, stride) in enumerate(BLOCKS):
        name, out = f"block{i}", x
        if inner != inputs:
            out = unit(out, inner, 1, f"{name}_expand", act=act)
        out = unit(out, inner, kernel, f"{name}_depthwise", stride, inner, act)
        if gates:
            out = gated(out, inner, squeezed(inner), f"{name}_gates", "relu", hard=True)
        out = unit(out, filters, 1, f"{name}_project", act="")
        x = x + out if stride == 1 and inputs == filters else out
        inputs = filters
    x = unit(x, 960, 1, "last", act="hard_swish")
    x = mx.sym.Flatten(mx.sym.Pooling(x, pool_type="avg", kernel=(1, 1), global_pool=True))
    x = mx.sym.hard_swish(mx.sym.FullyConnected(x, num_hidden=1280, name="wide"))
    return mx.sym.FullyConnected(x, num_hidden=classes, name="fc")


class Block(nn.Module):
    def __init__(
        self, inputs: int, kernel: int, inner: int, filters: int, gates: bool, act: str, stride: int
    ) -> None:
        super().__init__()
        self.expand = Unit(inputs, inner, 1, act=act) if inner != inputs else nn.Identity()
        self.depthwise = Unit(inner, inner, kernel, stride, inner, act)
        self.gates = Gated(inner, squeezed(inner), "relu", hard=True) if gates else nn.Identity()
        self.project = Unit(inner, filters, 1, act="")
        self.residual = stride == 1 and inputs == filters

    def forward(self, x: Tensor) -> Tensor:
        out = self.project(self.gates(self.depthwise(self.expand(x))))
        return x + out if self.residual else out


class MobileNet(nn.Module):
    def __init__(self, classes: int, **_: Any) -> None:
        super().__init__()
        self.stem = Unit(3, 16, 3, 2, act="hard_swish")
        inputs = 16
        for i, (kernel, inner, filters, gates, act, stride) in enumerate(BLOCKS):
            self.add_module(f"block{i}", Block(inputs, kernel, inner, filters, gates, act, stride))
            inputs = filters
        self.last = Unit(inputs, 960, 1, act="hard_swish")
        self.wide, self.fc = nn.Linear(960, 1280), nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i in range(len(BLOCKS)):
            x = getattr(self, f"block{i}")(x)
        return self.fc(F.hardswish(self.wide(mean_over_image(self.last(x))), inplace=True))


NETWORK = Network(
    "MobileNet-v3",
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
