"""An autoencoder: strided convolutions, and transposed ones that undo them (G. Hinton, R. Salakhutdinov 2006,
"Reducing the dimensionality of data with neural networks"; M. Zeiler et al. 2010, "Deconvolutional
networks")."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network

SHAPE: dict[str, Any] = dict(kernel=(4, 4), stride=(2, 2), pad=(1, 1))


def symbol(levels: int, width: int, **_: Any) -> Symbol:
    x = mx.sym.Variable("data")
    for i in range(levels):
        x = mx.sym.Convolution(x, num_filter=width << i, no_bias=True, name=f"down{i}", **SHAPE)
        x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"down{i}_bn")
        x = mx.sym.LeakyReLU(x, act_type="leaky", slope=0.2)
    for i in reversed(range(1, levels)):
        x = mx.sym.Deconvolution(x, num_filter=width << (i - 1), name=f"up{i}", **SHAPE)
        x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"up{i}_bn")
        x = mx.sym.LeakyReLU(x, act_type="leaky", slope=0.2)
    return mx.sym.sigmoid(mx.sym.Deconvolution(x, num_filter=3, no_bias=False, name="up0", **SHAPE))


class Autoencoder(nn.Module):
    def __init__(self, levels: int, width: int, **_: Any) -> None:
        super().__init__()
        self.levels, inputs = levels, 3
        for i in range(levels):
            self.add_module(f"down{i}", nn.Conv2d(inputs, width << i, 4, 2, 1, bias=False))
            self.add_module(f"down{i}_bn", nn.BatchNorm2d(width << i))
            inputs = width << i
        for i in reversed(range(1, levels)):
            self.add_module(f"up{i}", nn.ConvTranspose2d(inputs, inputs // 2, 4, 2, 1, bias=False))
            inputs //= 2
            self.add_module(f"up{i}_bn", nn.BatchNorm2d(inputs))
        self.up0 = nn.ConvTranspose2d(inputs, 3, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        names = [f"down{i}" for i in range(self.levels)] + [f"up{i}" for i in range(self.levels - 1, 0, -1)]
        for name in names:
            x = F.leaky_relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)), 0.2, inplace=True)
        return torch.sigmoid(self.up0(x))


NETWORK = Network(
    "Autoencoder",
    symbol,
    Autoencoder,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=8,
    sizes=dict(side=128, levels=4, width=32),
    quick=dict(batch=4, side=32, levels=3, width=8),
    loss="squares",
    layout="channels_last",
    rate=1e-5,
    bound=0.1,
)
