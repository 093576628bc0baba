"""Dense layers of mixed precision with an inlined cast of a float32 batch, some samples at a time.

A batch from the user stays float32, and the first layer reads a copy of it in 16 bits. If data has more
elements than the following layers' results, as in a perceptron, that copy costs more than 16 bits save. Here
some samples are cast where they are multiplied, in the same bytes each time:

    for samples [a, b)    narrow = data[a:b] in 16 bits           a band, small enough to stay in the cache
                          out[a:b] = narrow @ weight.T + bias

    for samples [a, b)    narrow = data[a:b] in 16 bits
                          d_weight += d_out[a:b].T @ narrow       in float32, and not rounded

The pass `passes/precision/wide_dense.py` inserts the operators into a step; no user and no file ever sees
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...core.dtype import float32
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.nn.dense import FullyConnected
from ...ops.scratch import carve, Piece, scratch_bytes

BAND_BYTES, LEAST_BAND = 128 * 1024, 64
"""Bytes of cast data at a time, about, and least number of samples: for each band a kernel copies the
weight, or adds to its gradient."""

_NARROW = np.dtype("float16")  # as long as any type of 16 bits


class WideDense(Op):
    """``out = data @ weight.T + bias``, as in FullyConnected, with data rounded to the type of the weight.

    data: (N, ...) read as (N, K), float32;  weight: (M, K), of 16 bits;  bias: (M,)  ->  out: (N, M).
    """

    op_name = "_wide_dense"
    inputs = FullyConnected.inputs
    Attrs = FullyConnected.Attrs
    input_names = FullyConnected.input_names
    infer_shape = FullyConnected.infer_shape
    flops = FullyConnected.flops

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, dtypes[1:2]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        (hidden, width), count = inputs[1], prod(outputs[0][:-1])
        rows = band_of(count, width)
        own = scratch_bytes([((rows, width), _NARROW)])
        return own + product_bytes(rows, width, hidden, _NARROW)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        hidden, width = weight.shape
        x, y = data.reshape(-1, width), out.reshape(-1, hidden)
        pieces = [((band_of(len(x), width), width), weight.dtype)]
        (held,) = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        for rows in bands(len(x), width):
            narrow = held[: rows.stop - rows.start]
            xp.copyto(narrow, x[rows], casting="unsafe")
            product(xp, narrow, weight.T, y[rows], rest)
        if bias is not None:
            xp.add(y, bias, out=y)


@dataclass(frozen=True)
class WideGradientAttrs:
    """shape: that of the weight whose gradient is computed."""

    shape: Shape


class WideDenseWeightGradient(Op):
    """The weight gradient of `_wide_dense`, ``d_weight = d_out.T @ data``, with data rounded.

    d_out: N * M numbers read as (N, M), of 16 bits;  data: N * K read as (N, K), float32  ->  d_weight:
    (M, K), float32.
    """

    op_name = "_wide_dense_d_weight"
    inputs = ("d_out", "data")
    outputs = ("d_weight",)
    recomputable = False
    Attrs = WideGradientAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, (a.shape,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, dtypes[1:2]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * a.shape[1]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        hidden, width = a.shape
        rows = band_of(prod(inputs[0]) // hidden, width)
        return scratch_bytes(_gradient_pieces(rows, a.shape, _NARROW)) + product_bytes(
            hidden, rows, width, _NARROW
        )

    @staticmethod
    def forward(xp: Any, a: Any, d_out: Any, data: Any, *, d_weight: Any, work: Any) -> None:
        hidden, width = a.shape
        d, x = d_out.reshape(-1, hidden), data.reshape(-1, width)
        pieces = _gradient_pieces(band_of(len(x), width), a.shape, d_out.dtype)
        held, term = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        d_weight.fill(0)
        for rows in bands(len(x), width):
            narrow = held[: rows.stop - rows.start]
            xp.copyto(narrow, x[rows], casting="unsafe")
            product(xp, d[rows].T, narrow, term, rest)
            xp.add(d_weight, term, out=d_weight)


def band_of(count: int, width: int) -> int:
    """Samples of a band, except the last, out of `count`: bands are about equal."""
    wanted = max(LEAST_BAND, BAND_BYTES // (2 * width))
    each = -(-count // max(1, round(count / wanted)))
    return min(count, -(-each // 16) * 16)


def bands(count: int, width: int) -> list[slice]:
    """The samples of each band."""
    step = max(1, band_of(count, width))
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def _gradient_pieces(rows: int, weight: Shape, dtype: DType) -> list[Piece]:
    """Scratch: a band of data, and its part of the gradient."""
    return [((rows, weight[1]), dtype), (weight, float32)]
