"""Dense layers of mixed precision with an inlined cast of their weight, some rows at a time.

In mixed precision a dense layer reads a copy of its float32 weight in 16 bits. With few samples that copy is
most of what the layer touches: it is written to memory, read twice, and for a large layer it is the largest
array of a step. Here a band of its rows is cast where it is multiplied, in the same bytes each time:

    for rows [a, b)    narrow = weight[a:b] in 16 bits        a band, small enough to stay in the cache
                       out[:, a:b] = data @ narrow.T + bias[a:b]

    for rows [a, b)    narrow = weight[a:b] in 16 bits
                       d_data += grad[:, a:b] @ narrow        in float32, rounded once

The pass `passes/precision/narrowed_dense.py` inserts the operators into a step; no user and no file ever sees
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ...core.dtype import float32
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.nn.dense import FullyConnected
from ...ops.scratch import carve, Piece, scratch_bytes

BAND_BYTES = 1024 * 1024
"""Bytes of cast rows at a time, about: they stay in the cache."""

FEWEST = 8
"""Least number of bands: those of a smaller weight are smaller."""

_MULTIPLE = 16  # rows: whole vectors, whether or not a kernel transposes the product


class NarrowedDense(Op):
    """``out = data @ weight.T + bias``, as in FullyConnected, with the weight rounded to the type of data.

    data: (N, ...) read as (N, K), of 16 bits;  weight: (M, K), float32;  bias: (M,)  ->  out: (N, M).
    """

    op_name = "_narrowed_dense"
    inputs = FullyConnected.inputs
    Attrs = FullyConnected.Attrs
    input_names = FullyConnected.input_names
    infer_shape = FullyConnected.infer_shape
    flops = FullyConnected.flops

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, dtypes[:1]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        rows, width = band_of(inputs[1])
        count = prod(outputs[0][:-1])
        return scratch_bytes([((rows, width), dtype)]) + product_bytes(count, width, rows, dtype)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        hidden, width = weight.shape
        pieces = [(band_of(weight.shape), data.dtype)]
        (held,) = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        x, y = data.reshape(-1, width), out.reshape(-1, hidden)
        for rows in bands(weight.shape):
            narrow = held[: rows.stop - rows.start]
            xp.copyto(narrow, weight[rows], casting="unsafe")
            product(xp, x, narrow.T, y[:, rows], rest)
        if bias is not None:
            xp.add(y, bias, out=y)


@dataclass(frozen=True)
class NarrowedGradientAttrs:
    """shape: that of the data whose gradient is computed."""

    shape: Shape


class NarrowedDenseDataGradient(Op):
    """The gradient of `_narrowed_dense` in its data, ``d_data = grad @ weight``.

    grad: N * M numbers read as (N, M), of 16 bits;  weight: (M, K), float32  ->  d_data: `shape`, as grad.
    """

    op_name = "_narrowed_dense_d_data"
    inputs = ("grad", "weight")
    outputs = ("d_data",)
    recomputable = False
    Attrs = NarrowedGradientAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, (a.shape,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, dtypes[:1]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * inputs[1][1]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        rows, width = band_of(inputs[1])
        count = prod(inputs[0]) // inputs[1][0]
        return scratch_bytes(_gradient_pieces(inputs, dtype)) + product_bytes(count, rows, width, dtype)

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, weight: Any, *, d_data: Any, work: Any) -> None:
        hidden, width = weight.shape
        pieces = _gradient_pieces((grad.shape, weight.shape), grad.dtype)
        held, total, term = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        d = grad.reshape(-1, hidden)
        total.fill(0)
        for rows in bands(weight.shape):
            narrow = held[: rows.stop - rows.start]
            xp.copyto(narrow, weight[rows], casting="unsafe")
            product(xp, d[:, rows], narrow, term, rest)
            xp.add(total, term, out=total)
        xp.copyto(d_data.reshape(-1, width), total, casting="unsafe")


def band_of(weight: Shape) -> Shape:
    """Rows of a band of `weight`, except the last, and their length: bands are about equal."""
    rows, width = weight
    count = max(FEWEST, -(-2 * rows * width // BAND_BYTES))
    even = -(-rows // count)
    return min(rows, -(-even // _MULTIPLE) * _MULTIPLE), width


def bands(weight: Shape) -> list[slice]:
    """The rows of each band."""
    rows, step = weight[0], max(1, band_of(weight)[0])
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


def _gradient_pieces(inputs: Shapes, dtype: DType) -> list[Piece]:
    """Scratch: a band of the weight, the sum, and a band's part of it."""
    (hidden, width), count = inputs[1], prod(inputs[0]) // inputs[1][0]
    return [(band_of((hidden, width)), dtype), ((count, width), float32), ((count, width), float32)]
