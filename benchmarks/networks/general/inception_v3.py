"""Inception-v3: C. Szegedy et al. 2016, "Rethinking the Inception architecture for computer vision"; without
the auxiliary classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network
from ..units import classes_of, mean_over_image, Unit, unit

Part = tuple[int, int | tuple[int, int], int, int | tuple[int, int] | None]
"""Filters, kernel, stride, padding (None: half a kernel) of a convolution."""
Branch = tuple[str, tuple[Part, ...], tuple[Part, ...]]
"""A pooling, "avg", "max" or none; convolutions; then others side by side, whose results are joined."""


def chain(*parts: tuple[Any, ...], pool: str = "", sides: tuple[tuple[Any, ...], ...] = ()) -> Branch:
    """Of parts, a stride of 1 and a padding of half a kernel may be left out."""
    full = [(*p, *(1, None)[len(p) - 2 :]) for p in (*parts, *sides)]
    return pool, tuple(full[: len(parts)]), tuple(full[len(parts) :])


def block_a(behind: int) -> list[Branch]:
    return [
        chain((64, 1)),
        chain((48, 1), (64, 5)),
        chain((64, 1), (96, 3), (96, 3)),
        chain((behind, 1), pool="avg"),
    ]


def block_c(width: int) -> list[Branch]:
    row, column = (1, 7), (7, 1)
    return [
        chain((192, 1)),
        chain((width, 1), (width, row), (192, column)),
        chain((width, 1), (width, column), (width, row), (width, column), (192, row)),
        chain((192, 1), pool="avg"),
    ]


def block_e() -> list[Branch]:
    sides = ((384, (1, 3)), (384, (3, 1)))
    return [
        chain((320, 1)),
        chain((384, 1), sides=sides),
        chain((448, 1), (384, 3), sides=sides),
        chain((192, 1), pool="avg"),
    ]


STEM: list[list[Branch]] = [
    [chain((32, 3, 2, 0), (32, 3, 1, 0), (64, 3))],
    [chain(pool="max")],
    [chain((80, 1), (192, 3, 1, 0))],
    [chain(pool="max")],
]
BODY: list[list[Branch]] = [
    block_a(32),
    block_a(64),
    block_a(64),
    [chain((384, 3, 2, 0)), chain((64, 1), (96, 3), (96, 3, 2, 0)), chain(pool="max")],
    block_c(128),
    block_c(160),
    block_c(160),
    block_c(192),
    [
        chain((192, 1), (320, 3, 2, 0)),
        chain((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, 0)),
        chain(pool="max"),
    ],
    block_e(),
    block_e(),
]
BLOCKS = STEM + BODY


def run(x: Symbol, branch: Branch, name: str) -> list[Symbol]:
    pool, parts, sides = branch
    if pool == "avg":
        x = mx.sym.Pooling(x, pool_type="avg", kernel=(3, 3), pad=(1, 1))
    elif pool == "max":
        x = mx.sym.Pooling(x, pool_type="max", kernel=(3, 3), stride=(2, 2))
    for i, (filters, kernel, stride, pad) in enumerate(parts):
        x = unit(x, filters, kernel, f"{name}_unit{i}", stride, pad=pad)
    if not sides:
        return [x]
    return [unit(x, filters, kernel, f"{name}_side{i}") for i, (filters, kernel, *_) in enumerate(sides)]


def symbol(classes: int, **_: Any) -> Symbol:
    x = mx.sym.Variable("data")
    for b, branches in enumerate(BLOCKS):
        found = [y for i, branch in enumerate(branches) for y in run(x, branch, f"block{b}_branch{i}")]
        x = mx.sym.Concat(*found, dim=1) if len(found) > 1 else found[0]
    return classes_of(x, classes)


class OneBranch(nn.Module):
    def __init__(self, inputs: int, branch: Branch) -> None:
        super().__init__()
        self.pool, parts, sides = branch
        self.count, self.width = len(parts), inputs
        for i, (filters, kernel, stride, pad) in enumerate(parts):
            self.add_module(f"unit{i}", Unit(self.width, filters, kernel, stride, pad=pad))
            self.width = filters
        self.sides = len(sides)
        for i, (filters, kernel, *_) in enumerate(sides):
            self.add_module(f"side{i}", Unit(self.width, filters, kernel))
        self.width = sum(s[0] for s in sides) or self.width

    def forward(self, x: Tensor) -> list[Tensor]:
        if self.pool == "avg":
            x = F.avg_pool2d(x, 3, 1, 1)
        elif self.pool == "max":
            x = F.max_pool2d(x, 3, 2)
        for i in range(self.count):
            x = getattr(self, f"unit{i}")(x)
        return [getattr(self, f"side{i}")(x) for i in range(self.sides)] if self.sides else [x]


class Block(nn.Module):
    def __init__(self, inputs: int, branches: list[Branch]) -> None:
        super().__init__()
        self.branches = [OneBranch(inputs, branch) for branch in branches]
        for i, branch in enumerate(self.branches):
            self.add_module(f"branch{i}", branch)
        self.width = sum(branch.width for branch in self.branches)

    def forward(self, x: Tensor) -> Tensor:
        found = [y for branch in self.branches for y in branch(x)]
        return torch.cat(found, 1) if len(found) > 1 else found[0]


class Inception(nn.Module):
    def __init__(self, classes: int, **_: Any) -> None:
        super().__init__()
        self.blocks, width = [], 3
        for b, branches in enumerate(BLOCKS):
            self.blocks.append(Block(width, branches))
            self.add_module(f"block{b}", self.blocks[-1])
            width = self.blocks[-1].width
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.fc(mean_over_image(x))


NETWORK = Network(
    "Inception-v3",
    symbol,
    Inception,
    lambda batch, side, **_: {"data": Input((batch, 3, side, side))},
    batch=2,
    sizes=dict(side=171, classes=1000),
    quick=dict(batch=4, side=107, classes=10),
    layout="channels_last",
    rate=1e-8,
    bound=0.1,
)
