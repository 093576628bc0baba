"""A language model with causal attention: A. Radford et al. 2019, "Language models are unsupervised multitask
learners" (GPT-2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import layer_norm, pre_norm_block, PreNormBlock
from ..network import Input, Network


def symbol(length: int, layers: int, width: int, heads: int, vocabulary: int) -> Symbol:
    table = mx.sym.Variable("embed_weight")
    x = mx.sym.Embedding(mx.sym.Variable("data"), table, input_dim=vocabulary, output_dim=width, name="embed")
    x = mx.sym.broadcast_add(x, mx.sym.Variable("position", shape=(1, length, width)))
    for i in range(layers):
        x = pre_norm_block(x, width, heads, f"block{i}", "tanh", causal=True)
    x = mx.sym.Reshape(layer_norm(x, "norm"), shape=(-3, 0))
    return mx.sym.FullyConnected(x, table, num_hidden=vocabulary, no_bias=True, name="score")


class GPT(nn.Module):
    def __init__(self, length: int, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(1, length, width))
        self.blocks = [PreNormBlock(width, heads, "tanh") for _ in range(layers)]
        for i, block in enumerate(self.blocks):
            self.add_module(f"block{i}", block)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x, is_causal=True)
        return F.linear(self.norm(x), self.embed.weight).flatten(0, 1)


def inputs(batch: int, length: int, vocabulary: int, **_: Any) -> dict[str, Input]:
    return {"data": Input((batch, length), vocabulary)}


NETWORK = Network(
    "GPT",
    symbol,
    GPT,
    inputs,
    batch=2,
    sizes=dict(length=128, layers=6, width=384, heads=6, vocabulary=8000),
    quick=dict(length=16, layers=2, width=64, heads=2, vocabulary=50),
    rate=1e-3,
)
