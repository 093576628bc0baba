"""A transformer with shifted windows: Z. Liu et al. 2021, "Swin transformer: hierarchical vision transformer
using shifted windows"."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import dense, feed_forward, FeedForward, layer_norm
from ..network import Input, Network

PATCH, SIZE = 4, 32
"""Of a head: 32 channels."""


def windows_of(x: Symbol, side: int, window: int, width: int) -> Symbol:
    """(N, `side`, `side`, C) -> (N, windows, places, C)."""
    count = side // window
    x = mx.sym.Reshape(x, shape=(-1, count, window, count, window, width))
    x = mx.sym.transpose(x, axes=(0, 1, 3, 2, 4, 5))
    return mx.sym.Reshape(x, shape=(-1, count * count, window * window, width))


def images_of(x: Symbol, side: int, window: int, width: int) -> Symbol:
    count = side // window
    x = mx.sym.Reshape(x, shape=(-1, count, count, window, window, width))
    x = mx.sym.transpose(x, axes=(0, 1, 3, 2, 4, 5))
    return mx.sym.Reshape(x, shape=(-1, side, side, width))


def attention(
    x: Symbol, side: int, window: int, width: int, index: Symbol, mask: Symbol | None, name: str
) -> Symbol:
    """Windows times heads are the attention's heads, so that each window has its own mask."""
    heads, count, places = width // SIZE, (side // window) ** 2, window * window
    x = mx.sym.Reshape(dense(x, 3 * width, f"{name}_qkv"), shape=(0, count, places, 3, heads, SIZE))
    parts = mx.sym.SliceChannel(
        mx.sym.transpose(x, axes=(3, 0, 1, 4, 2, 5)), num_outputs=3, axis=0, squeeze_axis=True
    )
    parts = [mx.sym.Reshape(part, shape=(0, -3, 0, 0)) for part in parts]
    table = mx.sym.Variable(f"{name}_position", shape=(heads, (2 * window - 1) ** 2))
    bias = mx.sym.expand_dims(mx.sym.take(table, index, axis=1), axis=0)
    if mask is None:
        bias = mx.sym.tile(bias, reps=(count, 1, 1, 1))
    else:
        bias = mx.sym.broadcast_add(bias, mask)
    bias = mx.sym.Reshape(bias, shape=(1, count * heads, places, places))
    x = mx.sym.scaled_dot_product_attention(*parts, bias, use_mask=True)
    x = mx.sym.Reshape(x, shape=(0, count, heads, places, SIZE))
    x = mx.sym.Reshape(mx.sym.transpose(x, axes=(0, 1, 3, 2, 4)), shape=(0, 0, 0, -3))
    return dense(x, width, f"{name}_out")


def block(
    x: Symbol, side: int, window: int, width: int, shift: int, index: Symbol, mask: Symbol | None, name: str
) -> Symbol:
    """`mask` is that of windows that are shifted."""
    out = layer_norm(x, f"{name}_norm1")
    if shift:
        out = mx.sym.roll(out, shift=(-shift, -shift), axis=(1, 2))
    out = windows_of(out, side, window, width)
    out = attention(out, side, window, width, index, mask if shift else None, f"{name}_attention")
    out = images_of(out, side, window, width)
    if shift:
        out = mx.sym.roll(out, shift=(shift, shift), axis=(1, 2))
    x = x + out
    return x + feed_forward(layer_norm(x, f"{name}_norm2"), width, 4 * width, f"{name}_ffn")


def symbol(side: int, layers: tuple[int, ...], width: int, window: int, classes: int) -> Symbol:
    x = mx.sym.Convolution(
        mx.sym.Variable("data"),
        num_filter=width,
        kernel=(PATCH, PATCH),
        stride=(PATCH, PATCH),
        name="patches",
    )
    x = layer_norm(mx.sym.transpose(x, axes=(0, 2, 3, 1)), "norm0")
    side, index = side // PATCH, mx.sym.Variable("index")
    for stage, count in enumerate(layers):
        if stage:
            x = mx.sym.Reshape(x, shape=(-1, side // 2, 2, side // 2, 2, width))
            x = mx.sym.transpose(x, axes=(0, 1, 3, 2, 4, 5))
            side //= 2
            x = mx.sym.Reshape(x, shape=(-1, side, side, 4 * width))
            width *= 2
            x = dense(layer_norm(x, f"stage{stage}_norm"), width, f"stage{stage}_merge", bias=False)
        mask = mx.sym.Variable(f"mask{side}") if count > 1 and side > window else None
        for i in range(count):
            shift = window // 2 if i % 2 and side > window else 0
            x = block(x, side, window, width, shift, index, mask, f"stage{stage}_block{i}")
    x = mx.sym.mean(layer_norm(x, "norm"), axis=(1, 2))
    return mx.sym.FullyConnected(x, num_hidden=classes, name="fc")


class Attention(nn.Module):
    def __init__(self, side: int, window: int, width: int) -> None:
        super().__init__()
        self.heads, self.count = width // SIZE, (side // window) ** 2
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.position = nn.Parameter(torch.zeros(self.heads, (2 * window - 1) ** 2))

    def forward(self, x: Tensor, index: Tensor, mask: Tensor | None) -> Tensor:
        qkv = self.qkv(x).unflatten(3, (3, self.heads, SIZE)).permute(3, 0, 1, 4, 2, 5)
        bias = self.position[:, index][None]
        bias = bias.expand(self.count, -1, -1, -1) if mask is None else bias + mask
        heads = qkv.flatten(2, 3).unbind(0)
        out = F.scaled_dot_product_attention(*heads, attn_mask=bias.flatten(0, 1)[None])
        return self.out(out.unflatten(1, (self.count, -1)).transpose(2, 3).flatten(3))


class Block(nn.Module):
    def __init__(self, side: int, window: int, width: int, shift: int) -> None:
        super().__init__()
        self.side, self.window, self.shift = side, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.ffn = Attention(side, window, width), FeedForward(width, 4 * width)

    def forward(self, x: Tensor, index: Tensor, mask: Tensor | None) -> Tensor:
        out, count = self.norm1(x), self.side // self.window
        if self.shift:
            out = out.roll((-self.shift, -self.shift), (1, 2))
        out = out.unflatten(2, (count, self.window)).unflatten(1, (count, self.window))
        out = self.attention(out.transpose(2, 3).flatten(3, 4).flatten(1, 2), index, mask)
        out = out.unflatten(2, (self.window, self.window)).unflatten(1, (count, count))
        out = out.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        if self.shift:
            out = out.roll((self.shift, self.shift), (1, 2))
        x = x + out
        return x + self.ffn(self.norm2(x))


class Merge(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).transpose(2, 3)
        return self.merge(self.norm(x.flatten(3)))


class Swin(nn.Module):
    def __init__(self, side: int, layers: tuple[int, ...], width: int, window: int, classes: int) -> None:
        super().__init__()
        self.patches, self.norm0 = nn.Conv2d(3, width, PATCH, PATCH), nn.LayerNorm(width)
        self.steps: list[nn.Module] = []
        side //= PATCH
        for stage, count in enumerate(layers):
            if stage:
                self.steps.append(Merge(width))
                self.add_module(f"stage{stage}", self.steps[-1])
                side, width = side // 2, 2 * width
            for i in range(count):
                shift = window // 2 if i % 2 and side > window else 0
                self.steps.append(Block(side, window, width, shift))
                self.add_module(f"stage{stage}_block{i}", self.steps[-1])
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor, index: Tensor, *masks: Tensor) -> Tensor:
        x = self.norm0(self.patches(x).permute(0, 2, 3, 1))
        waiting = {mask.shape[0]: mask for mask in masks}
        for step in self.steps:
            if isinstance(step, Block):
                x = step(x, index, waiting[step.attention.count] if step.shift else None)
            else:
                x = step(x)
        return self.fc(self.norm(x).mean((1, 2)))


def distances(window: int) -> np.ndarray:
    """(places, places): the number of the distance between two places of a window."""
    places = np.stack(np.meshgrid(*[np.arange(window)] * 2, indexing="ij")).reshape(2, -1)
    down, right = places[:, :, None] - places[:, None] + window - 1
    return down * (2 * window - 1) + right


def separated(side: int, window: int) -> np.ndarray:
    """(windows, 1, places, places): -100 between places that were not neighbours before a shift."""
    region = np.digitize(np.arange(side), [side - window, side - window // 2])
    region = 3 * region[:, None] + region
    count = side // window
    region = region.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(count * count, -1)
    return np.where(region[:, :, None] == region[:, None], 0.0, -100.0)[:, None]


def inputs(batch: int, side: int, layers: tuple[int, ...], window: int, **_: Any) -> dict[str, Input]:
    found = {
        "data": Input((batch, 3, side, side)),
        "index": Input.fixed(distances(window), (2 * window - 1) ** 2),
    }
    for stage, count in enumerate(layers):
        inner = side // PATCH >> stage
        if count > 1 and inner > window:
            found[f"mask{inner}"] = Input.fixed(separated(inner, window))
    return found


NETWORK = Network(
    "Swin",
    symbol,
    Swin,
    inputs,
    batch=4,
    sizes=dict(side=128, layers=(2, 2, 4), width=64, window=4, classes=1000),
    quick=dict(side=32, layers=(2, 2), width=32, window=4, classes=10),
    layout="channels_last",
    rate=1e-3,
)
