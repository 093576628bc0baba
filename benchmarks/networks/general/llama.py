"""A language model like Llama's: H. Touvron et al. 2023, "LLaMA: open and efficient foundation language
models"; root-mean-square norms, rotary positions, gated affine maps, and queries that share keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import dense
from ..network import Input, Network

EPS = 1e-5


def normed(x: Symbol, name: str) -> Symbol:
    return mx.sym.RMSNorm(x, axis=-1, eps=EPS, name=name)


def heads_of(x: Symbol, width: int, heads: int, size: int, name: str) -> Symbol:
    x = mx.sym.Reshape(dense(x, heads * size, name, bias=False), shape=(0, 0, heads, size))
    return mx.sym.transpose(x, axes=(0, 2, 1, 3))


def rotated(x: Symbol, cos: Symbol, sin: Symbol) -> Symbol:
    """J. Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding"."""
    first, second = mx.sym.SliceChannel(x, num_outputs=2, axis=3)
    turned = mx.sym.Concat(-second, first, dim=3)
    return mx.sym.broadcast_mul(x, cos) + mx.sym.broadcast_mul(turned, sin)


def symbol(
    length: int, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int
) -> Symbol:
    cos, sin = mx.sym.Variable("cos"), mx.sym.Variable("sin")
    size = width // heads
    x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=vocabulary, output_dim=width, name="embed")
    for i in range(layers):
        name, out = f"block{i}", normed(x, f"block{i}_norm1")
        query = rotated(heads_of(out, width, heads, size, f"{name}_query"), cos, sin)
        key = rotated(heads_of(out, width, groups, size, f"{name}_key"), cos, sin)
        value = heads_of(out, width, groups, size, f"{name}_value")
        out = mx.sym.scaled_dot_product_attention(query, key, value, causal=True)
        out = mx.sym.Reshape(mx.sym.transpose(out, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = x + dense(out, width, f"{name}_out", bias=False)
        out = normed(x, f"{name}_norm2")
        gate = mx.sym.silu(dense(out, hidden, f"{name}_gate", bias=False))
        x = x + dense(gate * dense(out, hidden, f"{name}_up", bias=False), width, f"{name}_down", bias=False)
    return dense(mx.sym.Reshape(normed(x, "norm"), shape=(-3, 0)), vocabulary, "score", bias=False)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        size = width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, EPS), nn.RMSNorm(width, EPS)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        out = self.norm1(x)
        query = self.turned(self.query(out).unflatten(2, (self.heads, -1)).transpose(1, 2), cos, sin)
        key = self.turned(self.key(out).unflatten(2, (self.groups, -1)).transpose(1, 2), cos, sin)
        value = self.value(out).unflatten(2, (self.groups, -1)).transpose(1, 2)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(out.transpose(1, 2).flatten(2))
        out = self.norm2(x)
        return x + self.down(F.silu(self.gate(out)) * self.up(out))

    @staticmethod
    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


class Llama(nn.Module):
    def __init__(
        self, length: int, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = [Block(width, heads, groups, hidden) for _ in range(layers)]
        for i, block in enumerate(self.blocks):
            self.add_module(f"block{i}", block)
        self.norm, self.score = nn.RMSNorm(width, EPS), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.score(self.norm(x)).flatten(0, 1)


def inputs(batch: int, length: int, width: int, heads: int, vocabulary: int, **_: Any) -> dict[str, Input]:
    size = width // heads
    angles = np.outer(np.arange(length), 1e4 ** (-np.arange(0, size, 2) / size))
    angles = np.concatenate([angles, angles], 1)[None, None]
    return {
        "data": Input((batch, length), vocabulary),
        "cos": Input.fixed(np.cos(angles)),
        "sin": Input.fixed(np.sin(angles)),
    }


NETWORK = Network(
    "Llama",
    symbol,
    Llama,
    inputs,
    batch=2,
    sizes=dict(length=128, layers=6, width=384, heads=6, groups=2, hidden=1024, vocabulary=8000),
    quick=dict(length=16, layers=2, width=64, heads=4, groups=2, hidden=96, vocabulary=50),
    rate=1e-3,
)
