"""Networks of the families people bring from PyTorch, each a stem, equal blocks and a head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from networks import twins
from torch import nn, Tensor
from torch.nn import functional as F

WORDS, CLASSES, IMAGE = 256, 10, 32


class Tower(nn.Module):
    """Blocks between a stem and a head."""

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.ModuleList(blocks), head

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


class Decoder(nn.Module):
    """A decoder of GPT, or with `gated` one of Llama: rotary positions, RMS norms, gated units."""

    def __init__(self, width: int, heads: int, gated: bool = False) -> None:
        super().__init__()
        norm: Any = nn.RMSNorm if gated else nn.LayerNorm
        self.heads, self.gated = heads, gated
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, not gated), nn.Linear(width, width, not gated)
        self.up, self.down = nn.Linear(width, 4 * width, not gated), nn.Linear(4 * width, width, not gated)
        if gated:
            self.gate = nn.Linear(width, 4 * width, False)
            size = width // heads
            self.register_buffer("rates", 1e4 ** (-torch.arange(0, size, 2).float() / size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        if self.gated:
            angles = torch.outer(torch.arange(t, dtype=torch.float32), self.rates)
            angles = torch.cat((angles, angles), -1)
            q, k = (y * angles.cos() + self.turned(y) * angles.sin() for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        y = self.norm2(x)
        y = F.silu(self.gate(y)) * self.up(y) if self.gated else F.gelu(self.up(y), approximate="tanh")
        out: Tensor = x + self.down(y)
        return out

    @staticmethod
    def turned(x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return torch.cat((-right, left), dim=-1)


class Window(nn.Module):
    """A layer of Swin on (N, H, W, C): attention in shifted windows, and a perceptron."""

    def __init__(self, width: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.heads, self.size, self.shift = heads, size, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, size * size, size * size))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        m, s = self.size, self.shift
        y = torch.roll(self.norm1(x), (-s, -s), (1, 2)).view(b, h // m, m, w // m, m, c)
        y = self.qkv(y.permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c))
        q, k, v = y.reshape(-1, m * m, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q * (c // self.heads) ** -0.5 @ k.transpose(-2, -1) + self.bias
        y = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, m * m, c))
        y = y.view(b, h // m, w // m, m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        x = x + torch.roll(y, (s, s), (1, 2))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


class Depthwise(nn.Module):
    """A block of ConvNeXt on (N, H, W, C)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        out: Tensor = x + self.scale * self.down(F.gelu(self.up(self.norm(y))))
        return out


class Inverted(nn.Module):
    """An inverted bottleneck of MobileNetV2, or with `squeezed` one of EfficientNet."""

    def __init__(self, width: int, squeezed: bool = False) -> None:
        super().__init__()
        inner, act = 4 * width, nn.SiLU if squeezed else nn.ReLU6
        self.up = nn.Sequential(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), act())
        self.deep = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), act()
        )
        self.squeeze = nn.Sequential(
            nn.Conv2d(inner, width, 1), nn.SiLU(), nn.Conv2d(width, inner, 1), nn.Sigmoid()
        ) if squeezed else None  # fmt: skip
        self.down = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.deep(self.up(x))
        if self.squeeze is not None:
            y = y * self.squeeze(y.mean((2, 3), keepdim=True))
        out: Tensor = x + self.down(y)
        return out


class Words(nn.Module):
    """Words and their places."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.word(x) + self.place
        return out


class Patches(nn.Module):
    """Patches of pictures: (N, 3, H, W) -> (N, H / size, W / size, width), or in a row with their places."""

    def __init__(self, width: int, size: int, row: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, size, size)
        self.place = nn.Parameter(torch.randn((IMAGE // size) ** 2, width) * 0.02) if row else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).permute(0, 2, 3, 1)
        return x if self.place is None else x.flatten(1, 2) + self.place


class Pooled(nn.Module):
    """Classes of the mean over some axes."""

    def __init__(self, width: int, *axes: int) -> None:
        super().__init__()
        self.axes, self.score = axes, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.score(x.mean(self.axes))
        return out


class Family(NamedTuple):
    """A network by the number of its blocks, and whether it reads words."""

    name: str
    make: Callable[[int], nn.Module]
    words: bool = False


LENGTH = 128


def _language(block: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda n: Tower(Words(128, LENGTH), [block() for _ in range(n)], nn.Linear(128, WORDS))


def _pictures(stem: Callable[[], nn.Module], block: Callable[[int], nn.Module], *axes: int) -> Any:
    return lambda n: Tower(stem(), [block(i) for i in range(n)], Pooled(64, *axes))


def _layer(width: int, first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=first)


FAMILIES = (
    Family("GPT", _language(lambda: Decoder(128, 4)), True),
    Family("Llama", _language(lambda: Decoder(128, 4, True)), True),
    Family("BERT", _language(lambda: _layer(128, False)), True),
    Family("ViT", _pictures(lambda: Patches(64, 4, True), lambda i: _layer(64, True), 1)),
    Family("Swin", _pictures(lambda: Patches(64, 2), lambda i: Window(64, 4, 4, i % 2 * 2), 1, 2)),
    Family("ConvNeXt", _pictures(lambda: Patches(64, 2), lambda i: Depthwise(64), 1, 2)),
    Family("MobileNetV2", _pictures(lambda: nn.Conv2d(3, 64, 2, 2), lambda i: Inverted(64), 2, 3)),
    Family("EfficientNet", _pictures(lambda: nn.Conv2d(3, 64, 2, 2), lambda i: Inverted(64, True), 2, 3)),
    Family("ResNet", lambda n: twins.ResNet([n // 2] * 3, 32, CLASSES, small=True)),
)


def blocks_of(module: nn.Module) -> list[str]:
    """The names of a network's blocks."""
    kinds = (Decoder, Window, Depthwise, Inverted, nn.TransformerEncoderLayer, twins.PostActivation)
    return [name for name, part in module.named_modules() if isinstance(part, kinds)]
