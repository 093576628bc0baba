"""An encoder that predicts masked tokens: J. Devlin et al. 2019, "BERT: pre-training of deep bidirectional
transformers"."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import Attention, attention, dense, feed_forward, FeedForward, layer_norm
from ..network import Input, Network

EPS = 1e-12


def symbol(length: int, layers: int, width: int, heads: int, vocabulary: int) -> Symbol:
    table = mx.sym.Variable("embed_weight")
    x = mx.sym.Embedding(mx.sym.Variable("data"), table, input_dim=vocabulary, output_dim=width, name="embed")
    x = x + mx.sym.Embedding(mx.sym.Variable("segment"), input_dim=2, output_dim=width, name="segment_embed")
    x = mx.sym.broadcast_add(x, mx.sym.Variable("position", shape=(1, length, width)))
    x = layer_norm(x, "norm", EPS)
    options = dict(length=mx.sym.Variable("length"), use_length=True)
    for i in range(layers):
        name = f"block{i}"
        x = layer_norm(x + attention(x, width, heads, f"{name}_attention", **options), f"{name}_norm1", EPS)
        x = layer_norm(x + feed_forward(x, width, 4 * width, f"{name}_ffn"), f"{name}_norm2", EPS)
    x = layer_norm(mx.sym.gelu(dense(x, width, "head")), "head_norm", EPS)
    return mx.sym.FullyConnected(mx.sym.Reshape(x, shape=(-3, 0)), table, num_hidden=vocabulary, name="score")


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.ffn = Attention(width, heads), FeedForward(width, 4 * width)
        self.norm1, self.norm2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, attn_mask=mask))
        return self.norm2(x + self.ffn(x))


class BERT(nn.Module):
    def __init__(self, length: int, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embed, self.segment_embed = nn.Embedding(vocabulary, width), nn.Embedding(2, width)
        self.position = nn.Parameter(torch.zeros(1, length, width))
        self.norm = nn.LayerNorm(width, EPS)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        for i, block in enumerate(self.blocks):
            self.add_module(f"block{i}", block)
        self.head, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width, EPS)
        self.score_bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, x: Tensor, segment: Tensor, length: Tensor) -> Tensor:
        mask = torch.arange(x.shape[1]) < length.reshape(-1, 1, 1, 1)
        x = self.norm(self.embed(x) + self.segment_embed(segment) + self.position)
        for block in self.blocks:
            x = block(x, mask)
        x = self.head_norm(F.gelu(self.head(x)))
        return F.linear(x, self.embed.weight, self.score_bias).flatten(0, 1)


def inputs(batch: int, length: int, vocabulary: int, **_: Any) -> dict[str, Input]:
    counts = length - np.arange(batch) % (length // 2)
    return {
        "data": Input((batch, length), vocabulary),
        "segment": Input((batch, length), 2),
        "length": Input.fixed(counts, length + 1),
    }


NETWORK = Network(
    "BERT",
    symbol,
    BERT,
    inputs,
    batch=2,
    sizes=dict(length=128, layers=6, width=384, heads=6, vocabulary=8000),
    quick=dict(length=16, layers=2, width=64, heads=2, vocabulary=50),
    rate=1e-3,
)
