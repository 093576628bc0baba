"""Vision transformer: A. Dosovitskiy et al. 2021, "An image is worth 16x16 words"."""

from __future__ import annotations

import torch
from torch import nn, Tensor

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import layer_norm, pre_norm_block, PreNormBlock
from ..network import Input, Network


def symbol(side: int, patch: int, layers: int, width: int, heads: int, classes: int) -> Symbol:
    size = (patch, patch)
    x = mx.sym.Convolution(
        mx.sym.Variable("data"), num_filter=width, kernel=size, stride=size, name="patches"
    )
    x = mx.sym.transpose(mx.sym.Reshape(x, shape=(0, 0, -3)), axes=(0, 2, 1))
    first = mx.sym.Variable("class_position", shape=(1, 1, width))
    first = mx.sym.broadcast_like(first, x, lhs_axes=(0,), rhs_axes=(0,))
    places = mx.sym.Variable("position", shape=(1, (side // patch) ** 2 + 1, width))
    x = mx.sym.broadcast_add(mx.sym.Concat(first, x, dim=1), places)
    for i in range(layers):
        x = pre_norm_block(x, width, heads, f"block{i}")
    x = layer_norm(x, "norm")
    x = mx.sym.Reshape(mx.sym.slice_axis(x, axis=1, begin=0, end=1), shape=(0, -1))
    return mx.sym.FullyConnected(x, num_hidden=classes, name="fc")


class ViT(nn.Module):
    def __init__(self, side: int, patch: int, layers: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_position = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, width))
        self.blocks = [PreNormBlock(width, heads) for _ in range(layers)]
        for i, block in enumerate(self.blocks):
            self.add_module(f"block{i}", block)
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_position.expand(len(x), -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.fc(self.norm(x)[:, 0])


NETWORK = Network(
    "ViT",
    symbol,
    ViT,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=4,
    sizes=dict(side=128, patch=16, layers=6, width=384, heads=6, classes=1000),
    quick=dict(side=32, patch=8, layers=2, width=64, heads=2, classes=10),
    layout="channels_last",
    rate=1e-3,
)
