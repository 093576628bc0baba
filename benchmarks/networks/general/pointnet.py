"""A classifier of sets of points: C. Qi et al. 2017, "PointNet: deep learning on point sets for 3D
classification and segmentation", with the transform of its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network

WIDTHS = (64, 128, 1024)


def shared(x: Symbol, widths: tuple[int, ...], name: str) -> Symbol:
    """The same layers for each point, (N, C, points), then the maximum over the points, (N, C)."""
    for i, width in enumerate(widths):
        x = mx.sym.Convolution(x, num_filter=width, kernel=(1,), no_bias=True, name=f"{name}_conv{i}")
        x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"{name}_bn{i}")
        x = mx.sym.Activation(x, act_type="relu")
    return mx.sym.max(x, axis=2)


def symbol(points: int, widths: tuple[int, ...], classes: int) -> Symbol:
    data = mx.sym.Variable("data")
    x = shared(data, widths, "turn")
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=widths[-1] // 4, name="turn1"), act_type="relu")
    x = mx.sym.Reshape(mx.sym.FullyConnected(x, num_hidden=9, name="turn2"), shape=(0, 3, 3))
    x = shared(mx.sym.batch_dot(mx.sym.broadcast_add(x, mx.sym.Variable("unit")), data), widths, "body")
    for i in (2, 4):
        x = mx.sym.FullyConnected(x, num_hidden=widths[-1] // i, name=f"fc{i}")
        x = mx.sym.Activation(x, act_type="relu")
    return mx.sym.FullyConnected(x, num_hidden=classes, name="score")


class Shared(nn.Module):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.count, inputs = len(widths), 3
        for i, width in enumerate(widths):
            self.add_module(f"conv{i}", nn.Conv1d(inputs, width, 1, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm1d(width))
            inputs = width

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.count):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)), inplace=True)
        return x.amax(2)


class PointNet(nn.Module):
    def __init__(self, points: int, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.turn, self.body, last = Shared(widths), Shared(widths), widths[-1]
        self.turn1, self.turn2 = nn.Linear(last, last // 4), nn.Linear(last // 4, 9)
        self.fc2, self.fc4 = nn.Linear(last, last // 2), nn.Linear(last // 2, last // 4)
        self.score = nn.Linear(last // 4, classes)

    def forward(self, data: Tensor, unit: Tensor) -> Tensor:
        x = self.turn2(F.relu(self.turn1(self.turn(data)), inplace=True))
        x = self.body(torch.bmm(x.unflatten(1, (3, 3)) + unit, data))
        return self.score(F.relu(self.fc4(F.relu(self.fc2(x), inplace=True)), inplace=True))


def inputs(batch: int, points: int, **_: Any) -> dict[str, Input]:
    return {"data": Input((batch, 3, points)), "unit": Input.fixed(np.eye(3)[None])}


NETWORK = Network(
    "PointNet",
    symbol,
    PointNet,
    inputs,
    batch=8,
    sizes=dict(points=1024, widths=WIDTHS, classes=40),
    quick=dict(batch=4, points=64, widths=(8, 16, 32), classes=10),
    rate=1e-5,
    bound=0.1,
)
