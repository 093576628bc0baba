"""MLP-Mixer: I. Tolstikhin et al. 2021, "MLP-Mixer: an all-MLP architecture for vision"."""

from __future__ import annotations

from typing import Any

from torch import nn, Tensor

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import feed_forward, FeedForward, layer_norm
from ..network import Input, Network


def symbol(
    side: int, patch: int, layers: int, width: int, tokens: int, channels: int, classes: int
) -> Symbol:
    size = (patch, patch)
    x = mx.sym.Convolution(
        mx.sym.Variable("data"), num_filter=width, kernel=size, stride=size, name="patches"
    )
    x = mx.sym.transpose(mx.sym.Reshape(x, shape=(0, 0, -3)), axes=(0, 2, 1))
    places = (side // patch) ** 2
    for i in range(layers):
        out = mx.sym.transpose(layer_norm(x, f"block{i}_norm1"), axes=(0, 2, 1))
        out = feed_forward(out, places, tokens, f"block{i}_tokens")
        x = x + mx.sym.transpose(out, axes=(0, 2, 1))
        x = x + feed_forward(layer_norm(x, f"block{i}_norm2"), width, channels, f"block{i}_channels")
    x = mx.sym.mean(layer_norm(x, "norm"), axis=1)
    return mx.sym.FullyConnected(x, num_hidden=classes, name="fc")


class Block(nn.Module):
    def __init__(self, places: int, width: int, tokens: int, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = FeedForward(places, tokens), FeedForward(width, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(
        self, side: int, patch: int, layers: int, width: int, tokens: int, channels: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = [Block((side // patch) ** 2, width, tokens, channels) for _ in range(layers)]
        for i, block in enumerate(self.blocks):
            self.add_module(f"block{i}", block)
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.fc(self.norm(x).mean(1))


def inputs(batch: int, side: int, **_: Any) -> dict[str, Input]:
    return {"data": Input((batch, 3, side, side))}


NETWORK = Network(
    "MLP-Mixer",
    symbol,
    Mixer,
    inputs,
    batch=4,
    sizes=dict(side=160, patch=16, layers=8, width=384, tokens=192, channels=1536, classes=1000),
    quick=dict(side=32, patch=8, layers=2, width=64, tokens=32, channels=128, classes=10),
    layout="channels_last",
    rate=1e-3,
)
