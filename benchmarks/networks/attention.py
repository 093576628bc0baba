"""Parts of transformers, in both frameworks: attention with one map for queries, keys and values, and two
affine maps of each position."""

from __future__ import annotations

from typing import Any

from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol


def dense(x: Symbol, width: int, name: str, bias: bool = True) -> Symbol:
    """An affine map along the last axis."""
    return mx.sym.FullyConnected(x, num_hidden=width, flatten=False, no_bias=not bias, name=name)


def layer_norm(x: Symbol, name: str, eps: float = 1e-5) -> Symbol:
    return mx.sym.LayerNorm(x, axis=-1, eps=eps, name=name)


def attention(x: Symbol, width: int, heads: int, name: str, **options: Any) -> Symbol:
    """(N, L, `width`) -> (N, L, `width`). options: of `scaled_dot_product_attention`, a mask for one."""
    x = mx.sym.Reshape(dense(x, 3 * width, f"{name}_qkv"), shape=(0, 0, 3, heads, width // heads))
    parts = mx.sym.SliceChannel(
        mx.sym.transpose(x, axes=(2, 0, 3, 1, 4)), num_outputs=3, axis=0, squeeze_axis=True
    )
    x = mx.sym.scaled_dot_product_attention(*parts, **options)
    x = mx.sym.Reshape(mx.sym.transpose(x, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
    return dense(x, width, f"{name}_out")


class Attention(nn.Module):
    """PyTorch's `attention`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        parts = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(*parts, **options)
        return self.out(x.transpose(1, 2).flatten(2))


def feed_forward(x: Symbol, width: int, hidden: int, name: str, approximate: str = "none") -> Symbol:
    x = mx.sym.gelu(dense(x, hidden, f"{name}_wide"), approximate=approximate)
    return dense(x, width, f"{name}_narrow")


class FeedForward(nn.Module):
    """PyTorch's `feed_forward`."""

    def __init__(self, width: int, hidden: int, approximate: str = "none") -> None:
        super().__init__()
        self.wide, self.narrow, self.approximate = (
            nn.Linear(width, hidden),
            nn.Linear(hidden, width),
            approximate,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.wide(x), approximate=self.approximate))


def pre_norm_block(
    x: Symbol, width: int, heads: int, name: str, approximate: str = "none", **options: Any
) -> Symbol:
    """Attention and two affine maps, each behind a norm and added to its input."""
    x = x + attention(layer_norm(x, f"{name}_norm1"), width, heads, f"{name}_attention", **options)
    return x + feed_forward(layer_norm(x, f"{name}_norm2"), width, 4 * width, f"{name}_ffn", approximate)


class PreNormBlock(nn.Module):
    """PyTorch's `pre_norm_block`."""

    def __init__(self, width: int, heads: int, approximate: str = "none") -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.ffn = Attention(width, heads), FeedForward(width, 4 * width, approximate)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        x = x + self.attention(self.norm1(x), **options)
        return x + self.ffn(self.norm2(x))
