"""A graph convolutional network: T. Kipf, M. Welling 2017, "Semi-supervised classification with graph
convolutional networks". What flows along edges is gathered from their sources and added up at their
targets."""

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


def symbol(nodes: int, edges: int, features: int, widths: tuple[int, ...], classes: int) -> Symbol:
    x = mx.sym.Variable("data")
    source, target, weight = (mx.sym.Variable(n) for n in ("source", "target", "weight"))
    for i, width in enumerate((*widths, classes)):
        x = dense(x, width, f"layer{i}", bias=False)
        sent = mx.sym.broadcast_mul(mx.sym.take(x, source), weight)
        x = mx.sym.index_add(mx.sym.zeros_like(x), target, sent)
        x = mx.sym.broadcast_add(x, mx.sym.Variable(f"bias{i}_bias", shape=(width,)))
        x = x if i == len(widths) else mx.sym.Activation(x, act_type="relu")
    return x


class GCN(nn.Module):
    def __init__(self, nodes: int, edges: int, features: int, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.count, inputs = len(widths) + 1, features
        for i, width in enumerate((*widths, classes)):
            self.add_module(f"layer{i}", nn.Linear(inputs, width, bias=False))
            self.register_parameter(f"bias{i}_bias", nn.Parameter(torch.zeros(width)))
            inputs = width

    def forward(self, x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        for i in range(self.count):
            x = getattr(self, f"layer{i}")(x)
            x = torch.zeros_like(x).index_add(0, target, x[source] * weight)
            x = x + getattr(self, f"bias{i}_bias")
            x = x if i == self.count - 1 else F.relu(x, inplace=True)
        return x


def inputs(batch: int, nodes: int, edges: int, features: int, **_: Any) -> dict[str, Input]:
    """`batch` graphs side by side, each with random edges and one from each node to itself."""
    rng = np.random.default_rng(3)
    loops = np.arange(batch * nodes)
    first = np.repeat(np.arange(batch) * nodes, edges)
    source, target = (np.concatenate([first + rng.integers(0, nodes, first.size), loops]) for _ in range(2))
    degree = np.sqrt(np.bincount(target, minlength=batch * nodes))
    return {
        "data": Input((batch * nodes, features)),
        "source": Input.fixed(source, batch * nodes),
        "target": Input.fixed(target, batch * nodes),
        "weight": Input.fixed((1 / (degree[source] * degree[target]))[:, None]),
    }


NETWORK = Network(
    "GCN",
    symbol,
    GCN,
    inputs,
    batch=8,
    sizes=dict(nodes=1000, edges=5000, features=128, widths=(256, 256), classes=40),
    quick=dict(nodes=20, edges=50, features=8, widths=(16, 16), classes=5),
    rate=1e-2,
)
