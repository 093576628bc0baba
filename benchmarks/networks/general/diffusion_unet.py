"""The network of a diffusion model: J. Ho et al. 2020, "Denoising diffusion probabilistic models"; a U-Net
with group norms, an embedding of the time, and attention where images are smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network

GROUPS, HEADS = 8, 4


def group_norm(x: Symbol, width: int, name: str) -> Symbol:
    gamma, beta = (mx.sym.Variable(f"{name}_{n}", shape=(width,)) for n in ("gamma", "beta"))
    return mx.sym.GroupNorm(x, gamma, beta, num_groups=GROUPS, eps=1e-5, name=name)


def convolution(x: Symbol, filters: int, kernel: int, name: str, stride: int = 1) -> Symbol:
    size, pad = (kernel, kernel), (kernel // 2, kernel // 2)
    return mx.sym.Convolution(x, num_filter=filters, kernel=size, stride=(stride, stride), pad=pad, name=name)


def residual(x: Symbol, time: Symbol, inputs: int, filters: int, name: str) -> Symbol:
    out = convolution(mx.sym.silu(group_norm(x, inputs, f"{name}_norm1")), filters, 3, f"{name}_conv1")
    shift = mx.sym.FullyConnected(time, num_hidden=filters, name=f"{name}_time")
    out = mx.sym.broadcast_add(out, mx.sym.Reshape(shift, shape=(0, 0, 1, 1)))
    out = convolution(mx.sym.silu(group_norm(out, filters, f"{name}_norm2")), filters, 3, f"{name}_conv2")
    return out + (x if inputs == filters else convolution(x, filters, 1, f"{name}_skip"))


def attention(x: Symbol, width: int, side: int, name: str) -> Symbol:
    qkv = convolution(group_norm(x, width, f"{name}_norm"), 3 * width, 1, f"{name}_qkv")
    qkv = mx.sym.Reshape(qkv, shape=(0, 3, HEADS, width // HEADS, side * side))
    parts = mx.sym.SliceChannel(
        mx.sym.transpose(qkv, axes=(1, 0, 2, 4, 3)), num_outputs=3, axis=0, squeeze_axis=True
    )
    out = mx.sym.transpose(mx.sym.scaled_dot_product_attention(*parts), axes=(0, 1, 3, 2))
    return x + convolution(mx.sym.Reshape(out, shape=(0, width, side, side)), width, 1, f"{name}_out")


def symbol(side: int, width: int, levels: int) -> Symbol:
    angles = mx.sym.broadcast_mul(mx.sym.Variable("time"), mx.sym.Variable("frequencies"))
    time = mx.sym.Concat(mx.sym.sin(angles), mx.sym.cos(angles), dim=1)
    time = mx.sym.silu(mx.sym.FullyConnected(time, num_hidden=4 * width, name="time1"))
    time = mx.sym.silu(mx.sym.FullyConnected(time, num_hidden=4 * width, name="time2"))
    x = convolution(mx.sym.Variable("data"), width, 3, "stem")
    bridges, inputs = [], width
    for level in range(levels):
        x = residual(x, time, inputs, width << level, f"down{level}")
        inputs = width << level
        bridges.append(x)
        if level < levels - 1:
            x = convolution(x, inputs, 3, f"shrink{level}", 2)
    x = residual(x, time, inputs, inputs, "middle1")
    x = attention(x, inputs, side >> (levels - 1), "attention")
    x = residual(x, time, inputs, inputs, "middle2")
    for level in reversed(range(levels)):
        filters = width << level
        x = residual(mx.sym.Concat(x, bridges[level], dim=1), time, inputs + filters, filters, f"up{level}")
        inputs = filters
        if level:
            x = mx.sym.UpSampling(x, scale=2, sample_type="nearest")
            x = convolution(x, inputs // 2, 3, f"grow{level}")
            inputs //= 2
    return convolution(mx.sym.silu(group_norm(x, inputs, "norm")), 3, 3, "score")


class Residual(nn.Module):
    def __init__(self, inputs: int, filters: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, inputs), nn.GroupNorm(GROUPS, filters)
        self.conv1 = nn.Conv2d(inputs, filters, 3, padding=1)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1)
        self.time = nn.Linear(time, filters)
        self.skip = nn.Identity() if inputs == filters else nn.Conv2d(inputs, filters, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        out = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(out))) + self.skip(x)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x)).flatten(2).unflatten(1, (3, HEADS, -1))
        out = F.scaled_dot_product_attention(*qkv.permute(1, 0, 2, 4, 3).unbind(0))
        return x + self.out(out.transpose(2, 3).reshape(x.shape))


class UNet(nn.Module):
    def __init__(self, side: int, width: int, levels: int) -> None:
        super().__init__()
        self.levels, time = levels, 4 * width
        self.time1, self.time2 = nn.Linear(width, time), nn.Linear(time, time)
        self.stem, inputs = nn.Conv2d(3, width, 3, padding=1), width
        for level in range(levels):
            filters = width << level
            self.add_module(f"down{level}", Residual(inputs, filters, time))
            if level < levels - 1:
                self.add_module(f"shrink{level}", nn.Conv2d(filters, filters, 3, 2, 1))
            inputs = filters
        self.middle1, self.middle2 = Residual(inputs, inputs, time), Residual(inputs, inputs, time)
        self.attention = Attention(inputs)
        for level in reversed(range(levels)):
            filters = width << level
            self.add_module(f"up{level}", Residual(inputs + filters, filters, time))
            inputs = filters
            if level:
                self.add_module(f"grow{level}", nn.Conv2d(filters, filters // 2, 3, padding=1))
                inputs //= 2
        self.norm, self.score = nn.GroupNorm(GROUPS, inputs), nn.Conv2d(inputs, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, frequencies: Tensor) -> Tensor:
        angles = time * frequencies
        time = F.silu(self.time1(torch.cat([angles.sin(), angles.cos()], 1)))
        time = F.silu(self.time2(time))
        x, bridges = self.stem(x), []
        for level in range(self.levels):
            x = getattr(self, f"down{level}")(x, time)
            bridges.append(x)
            if level < self.levels - 1:
                x = getattr(self, f"shrink{level}")(x)
        x = self.middle2(self.attention(self.middle1(x, time)), time)
        for level in reversed(range(self.levels)):
            x = getattr(self, f"up{level}")(torch.cat([x, bridges[level]], 1), time)
            if level:
                x = getattr(self, f"grow{level}")(F.interpolate(x, scale_factor=2.0))
        return self.score(F.silu(self.norm(x)))


def inputs(batch: int, side: int, width: int, **_: Any) -> dict[str, Input]:
    return {
        "data": Input((batch, 3, side, side)),
        "time": Input.fixed(np.linspace(1, 900, batch)[:, None]),
        "frequencies": Input.fixed(1e4 ** -np.linspace(0, 1, width // 2)[None]),
    }


NETWORK = Network(
    "Diffusion U-Net",
    symbol,
    UNet,
    inputs,
    batch=4,
    sizes=dict(side=32, width=64, levels=3),
    quick=dict(side=16, width=16, levels=2),
    loss="squares",
    layout="channels_last",
    rate=1e-3,
)
