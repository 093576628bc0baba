"""A model of what people click: M. Naumov et al. 2019, "Deep learning recommendation model for
personalization and recommendation systems"; tables for categories, and products of all pairs of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

from ..network import Input, Network


def rectified(x: Symbol, widths: tuple[int, ...], name: str) -> Symbol:
    for i, width in enumerate(widths):
        x = mx.sym.FullyConnected(x, num_hidden=width, name=f"{name}{i}")
        x = mx.sym.Activation(x, act_type="relu")
    return x


def symbol(
    tables: int, rows: int, width: int, bottom: tuple[int, ...], top: tuple[int, ...], **_: Any
) -> Symbol:
    dense = rectified(mx.sym.Variable("data"), (*bottom, width), "bottom")
    columns = mx.sym.SliceChannel(
        mx.sym.Variable("categories"), num_outputs=tables, axis=1, squeeze_axis=True
    )
    found = [
        mx.sym.Embedding(column, input_dim=rows, output_dim=width, name=f"table{i}_embed")
        for i, column in enumerate(columns)
    ]
    vectors = mx.sym.stack(dense, *found, axis=1)
    products = mx.sym.Flatten(mx.sym.batch_dot(vectors, vectors, transpose_b=True))
    pairs = mx.sym.take(products, mx.sym.Variable("pairs"), axis=1)
    x = rectified(mx.sym.Concat(dense, pairs, dim=1), top, "top")
    return mx.sym.FullyConnected(x, num_hidden=1, name="score")


class DLRM(nn.Module):
    def __init__(
        self, tables: int, rows: int, width: int, bottom: tuple[int, ...], top: tuple[int, ...], features: int
    ) -> None:
        super().__init__()
        self.tables = tables
        inputs, self.layers = features, (len(bottom) + 1, len(top))
        for i, units in enumerate((*bottom, width)):
            self.add_module(f"bottom{i}", nn.Linear(inputs, units))
            inputs = units
        for i in range(tables):
            self.add_module(f"table{i}_embed", nn.Embedding(rows, width))
        inputs = width + (tables + 1) * tables // 2
        for i, units in enumerate(top):
            self.add_module(f"top{i}", nn.Linear(inputs, units))
            inputs = units
        self.score = nn.Linear(inputs, 1)

    def forward(self, x: Tensor, categories: Tensor, pairs: Tensor) -> Tensor:
        for i in range(self.layers[0]):
            x = F.relu(getattr(self, f"bottom{i}")(x), inplace=True)
        found = [getattr(self, f"table{i}_embed")(categories[:, i]) for i in range(self.tables)]
        vectors = torch.stack([x, *found], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        x = torch.cat([x, products.index_select(1, pairs)], 1)
        for i in range(self.layers[1]):
            x = F.relu(getattr(self, f"top{i}")(x), inplace=True)
        return self.score(x)


def inputs(batch: int, tables: int, rows: int, features: int, **_: Any) -> dict[str, Input]:
    row, column = np.tril_indices(tables + 1, -1)
    return {
        "data": Input((batch, features)),
        "categories": Input((batch, tables), rows),
        "pairs": Input.fixed(row * (tables + 1) + column, (tables + 1) ** 2),
    }


NETWORK = Network(
    "DLRM",
    symbol,
    DLRM,
    inputs,
    batch=4096,
    sizes=dict(tables=12, rows=10_000, width=32, bottom=(512, 256), top=(512, 256), features=13),
    quick=dict(batch=8, tables=3, rows=20, width=8, bottom=(16,), top=(16, 8), features=5),
    loss="binary",
    rate=1e-2,
)
