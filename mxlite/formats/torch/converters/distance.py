"""Distances between rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import broadcast_shapes, GraphValue
from ..node import TorchNode
from .reduction import length

_MANY = 25
"""PyTorch takes Euclidean distances of more rows than this by a product of matrices."""

_LEAST = 1e-30
"""The least square of a distance that comes from a product, as in PyTorch."""


def between_rows(n: TorchNode) -> GraphValue:
    """cdist: (..., P, M), (..., R, M) -> (..., P, R)"""
    b, left, right, p = n.builder, n["x1"], n["x2"], float(n.plain("p", 2))
    mode = n.plain("compute_mode", 0)
    many = max(left.shape[-2], right.shape[-2]) > _MANY
    if p == 2 and (mode == 1 or (mode in (0, None) and many)):
        return _by_product(left, right)
    left = b.reshape(left, (*left.shape[:-1], 1, left.shape[-1]))
    right = b.reshape(right, (*right.shape[:-2], 1, *right.shape[-2:]))
    return length(b.binary("sub", left, right), p, [-1], False)


def _by_product(left: GraphValue, right: GraphValue) -> GraphValue:
    """The root of |x|^2 - 2 x y + |y|^2, which takes no array of all differences."""
    b = left.builder
    squares = [b.reduce("sum", b.op("square", v), [-1]) for v in (left, right)]
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    squares[1] = b.reshape(squares[1], (*right.shape[:-2], 1, right.shape[-2]))
    turned = b.transpose(right, (*range(right.rank - 2), right.rank - 1, right.rank - 2))
    left, turned = (b.expand(v, (*batch, *v.shape[-2:])) for v in (left, turned))
    both = b.binary("add", squares[0], squares[1])
    return b.op("sqrt", b.binary("maximum", b.binary("sub", both, b.matmul(left, turned) * 2.0), _LEAST))


def of_pairs(n: TorchNode) -> GraphValue:
    """pdist: (N, M) -> the distances of rows i < j, row by row."""
    b, x = n.builder, n["self"]
    sides = (b.op("take", x, b.constant(at, np.int64), axis=0) for at in np.triu_indices(x.shape[0], 1))
    return length(b.binary("sub", *sides), float(n.plain("p", 2)), [-1], False)


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(("cdist", "_cdist_forward"), between_rows),
    **dict.fromkeys(("pdist", "_pdist_forward"), of_pairs),
}
