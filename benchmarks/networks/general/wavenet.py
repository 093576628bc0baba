"""A network for sound: A. van den Oord et al. 2016, "WaveNet: a generative model for raw audio"; causal,
dilated convolutions in one dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network


def convolution(x: Symbol, filters: int, kernel: int, name: str, dilation: int = 1) -> Symbol:
    return mx.sym.Convolution(x, num_filter=filters, kernel=(kernel,), dilate=(dilation,), name=name)


def symbol(length: int, stacks: int, layers: int, width: int, skips: int, levels: int) -> Symbol:
    x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=levels, output_dim=width, name="embed")
    x, total = mx.sym.transpose(x, axes=(0, 2, 1)), None
    for stack in range(stacks):
        for layer in range(layers):
            name, dilation = f"stack{stack}_layer{layer}", 1 << layer
            out = mx.sym.pad(x, mode="constant", pad_width=(0, 0, 0, 0, dilation, 0))
            out = convolution(out, 2 * width, 2, f"{name}_dilated", dilation)
            value, gate = mx.sym.SliceChannel(out, num_outputs=2, axis=1)
            out = mx.sym.tanh(value) * mx.sym.sigmoid(gate)
            skip = convolution(out, skips, 1, f"{name}_skip")
            total = skip if total is None else total + skip
            if (stack, layer) != (stacks - 1, layers - 1):
                x = x + convolution(out, width, 1, f"{name}_out")
    x = convolution(mx.sym.Activation(total, act_type="relu"), skips, 1, "head")
    x = convolution(mx.sym.Activation(x, act_type="relu"), levels, 1, "score")
    return mx.sym.Reshape(mx.sym.transpose(x, axes=(0, 2, 1)), shape=(-3, 0))


class Layer(nn.Module):
    def __init__(self, width: int, skips: int, dilation: int, last: bool) -> None:
        super().__init__()
        self.dilation = dilation
        self.dilated = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.skip = nn.Conv1d(width, skips, 1)
        self.out = None if last else nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gate = self.dilated(F.pad(x, (self.dilation, 0))).chunk(2, 1)
        out = torch.tanh(value) * torch.sigmoid(gate)
        return x if self.out is None else x + self.out(out), self.skip(out)


class WaveNet(nn.Module):
    def __init__(self, length: int, stacks: int, layers: int, width: int, skips: int, levels: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(levels, width)
        self.layers = []
        for stack in range(stacks):
            for layer in range(layers):
                last = (stack, layer) == (stacks - 1, layers - 1)
                self.layers.append(Layer(width, skips, 1 << layer, last))
                self.add_module(f"stack{stack}_layer{layer}", self.layers[-1])
        self.head, self.score = nn.Conv1d(skips, skips, 1), nn.Conv1d(skips, levels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.embed(x).transpose(1, 2), None
        for layer in self.layers:
            x, skip = layer(x)
            total = skip if total is None else total + skip
        x = self.score(F.relu(self.head(F.relu(total))))
        return x.transpose(1, 2).flatten(0, 1)


def inputs(batch: int, length: int, levels: int, **_: Any) -> dict[str, Input]:
    return {"data": Input((batch, length), levels)}


NETWORK = Network(
    "WaveNet",
    symbol,
    WaveNet,
    inputs,
    batch=2,
    sizes=dict(length=2048, stacks=2, layers=8, width=64, skips=128, levels=256),
    quick=dict(length=64, stacks=1, layers=3, width=16, skips=16, levels=32),
    rate=1e-3,
)
