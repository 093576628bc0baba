"""Constant matrices applied along one axis."""

from __future__ import annotations

import numpy as np

from .value import GraphValue


def along_axis(x: GraphValue, axis: int, matrix: np.ndarray) -> GraphValue:
    """``out[..., i, ...] = sum over j of matrix[i, j] * x[..., j, ...]`` with i and j at `axis`."""
    b, axis = x.builder, axis % x.rank
    weight = b.constant(matrix, x.dtype)
    order = [i for i in range(x.rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(x.rank)]
    turned = b.transpose(x, order)
    if turned.rank == 1:
        rows = b.op(
            "FullyConnected", b.reshape(turned, (1, x.size)), weight, num_hidden=len(matrix), no_bias=True
        )
        return b.reshape(rows, (len(matrix),))
    out = b.op("FullyConnected", turned, weight, num_hidden=len(matrix), no_bias=True, flatten=False)
    return b.transpose(out, back)
