"""A generator of images and the network that judges them: A. Radford et al. 2016, "Unsupervised
representation learning with deep convolutional generative adversarial networks". A step trains both by one
loss, as the generator's step passes through both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network

LEVELS, FIRST = 3, 4
"""Images grow from 4x4, doubling three times and once more at the end."""
SHAPE: dict[str, Any] = dict(kernel=(4, 4), stride=(2, 2), pad=(1, 1))


def norm(x: Symbol, name: str) -> Symbol:
    return mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=name)


def symbol(noise: int, width: int) -> Symbol:
    x = mx.sym.Reshape(mx.sym.Variable("data"), shape=(0, 0, 1, 1))
    x = mx.sym.Deconvolution(x, num_filter=width << LEVELS, kernel=(FIRST, FIRST), name="grow0")
    x = mx.sym.Activation(norm(x, "grow0_bn"), act_type="relu")
    for i in range(1, LEVELS + 1):
        x = mx.sym.Deconvolution(x, num_filter=width << (LEVELS - i), name=f"grow{i}", **SHAPE)
        x = mx.sym.Activation(norm(x, f"grow{i}_bn"), act_type="relu")
    x = mx.sym.tanh(mx.sym.Deconvolution(x, num_filter=3, name="image", **SHAPE))
    for i in range(LEVELS + 1):
        x = mx.sym.Convolution(x, num_filter=width << i, no_bias=True, name=f"judge{i}", **SHAPE)
        x = norm(x, f"judge{i}_bn") if i else x
        x = mx.sym.LeakyReLU(x, act_type="leaky", slope=0.2)
    x = mx.sym.Convolution(x, num_filter=1, kernel=(FIRST, FIRST), no_bias=True, name="judge")
    return mx.sym.Flatten(x)


class DCGAN(nn.Module):
    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.grow0 = nn.ConvTranspose2d(noise, width << LEVELS, FIRST, bias=False)
        self.grow0_bn = nn.BatchNorm2d(width << LEVELS)
        inputs = width << LEVELS
        for i in range(1, LEVELS + 1):
            self.add_module(f"grow{i}", nn.ConvTranspose2d(inputs, inputs // 2, 4, 2, 1, bias=False))
            inputs //= 2
            self.add_module(f"grow{i}_bn", nn.BatchNorm2d(inputs))
        self.image, inputs = nn.ConvTranspose2d(inputs, 3, 4, 2, 1, bias=False), 3
        for i in range(LEVELS + 1):
            self.add_module(f"judge{i}", nn.Conv2d(inputs, width << i, 4, 2, 1, bias=False))
            inputs = width << i
            if i:
                self.add_module(f"judge{i}_bn", nn.BatchNorm2d(inputs))
        self.judge = nn.Conv2d(inputs, 1, FIRST, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, None, None]
        for i in range(LEVELS + 1):
            x = F.relu(getattr(self, f"grow{i}_bn")(getattr(self, f"grow{i}")(x)), inplace=True)
        x = torch.tanh(self.image(x))
        for i in range(LEVELS + 1):
            x = getattr(self, f"judge{i}")(x)
            x = getattr(self, f"judge{i}_bn")(x) if i else x
            x = F.leaky_relu(x, 0.2, inplace=True)
        return self.judge(x).flatten(1)


def inputs(batch: int, noise: int, **_: Any) -> dict[str, Input]:
    return {"data": Input((batch, noise))}


NETWORK = Network(
    "DCGAN",
    symbol,
    DCGAN,
    inputs,
    batch=8,
    sizes=dict(noise=100, width=64),
    quick=dict(batch=4, noise=16, width=4),
    loss="binary",
    layout="channels_last",
    rate=1e-5,
    bound=0.1,
)
