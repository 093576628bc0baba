"""FullyConnected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Entry, Shape
from ...graph.opdef import DType, Op, require_rank, Shapes
from ..linalg.product import product, product_bytes
from ..scratch import accumulator


class FullyConnected(Op):
    """Affine map, ``out = data @ weight.T + bias``.

    data: (N, ...) read as (N, K);  weight: (M, K);  bias: (M,)  ->  out: (N, M), where M = `num_hidden`.
    With `flatten=False` only the last axis is mapped: (..., K) -> (..., M). Cost: 2 * N * M * K flops.
    Two-byte floats are multiplied and summed in float32.
    """

    inputs = ("data", "weight", "bias")
    optional = {"bias": "no_bias"}
    inferred = ("weight", "bias")
    accepts = "float"

    @record
    class Attrs:
        num_hidden: int
        no_bias: bool = False
        flatten: bool = True

        def __post_init__(self) -> None:
            if self.num_hidden < 1:
                raise OpAttributeError(f"num_hidden must be at least 1, got {self.num_hidden}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        require_rank(data, 1, "data")
        lead, width = (data[:1], prod(data[1:])) if a.flatten else (data[:-1], prod(data[-1:]))
        return (data, (a.num_hidden, width), (a.num_hidden,))[: len(shapes)], ((*lead, a.num_hidden),)

    @staticmethod
    def infer_inputs(
        a: Any, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]
    ) -> Sequence[Shape | None]:
        data, out = inputs[0], outputs[0]
        if data is None or out is None or (not a.flatten and len(data) != len(out)):
            return inputs
        data = (out[0], *data[1:]) if a.flatten else (*out[:-1], *data[-1:])
        return (data, *inputs[1:])

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * (2 * inputs[1][1] + (not a.no_bias))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return product_bytes(prod(outputs[0][:-1]), inputs[1][1], a.num_hidden, dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        rows, width, hidden = prod(outputs[0][:-1]), inputs[1][1], a.num_hidden
        return max(product_bytes(rows, hidden, width, dtype), product_bytes(hidden, rows, width, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        x, y = _rows(a, data), out.reshape(prod(out.shape[:-1]), out.shape[-1])
        product(xp, x, weight.T, y, work)
        if bias is not None:
            xp.add(y, bias, out=y)

    @staticmethod
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> None:
        d = d_out.reshape(prod(d_out.shape[:-1]), d_out.shape[-1])
        if d_data is not None:
            product(xp, d, weight, _rows(a, d_data), work)
        if d_weight is not None:
            product(xp, d.T, _rows(a, data), d_weight, work)
        if d_bias is not None:
            add_rows(xp, d, d_bias)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        data, d = ins["data"], heads["out"]
        if not a.flatten:
            data, d = (w.Reshape(x, shape=(-1, 0), reverse=True) for x in (data, d))
        gradients = {
            "data": w.reshape_like(w.dot(d, ins["weight"]), ins["data"]),
            "weight": w.dot(d, w.Flatten(data), transpose_a=True),
        }
        if not a.no_bias:
            gradients["bias"] = w.sum(d, axis=0)
        return gradients


def _rows(a: Any, data: Any) -> Any:
    """data as the matrix (N, K); written out, since -1 has no answer for arrays without elements."""
    shape = data.shape
    lead = shape[:1] if a.flatten else shape[:-1]
    return data.reshape(prod(lead), prod(shape[len(lead) :]))


def add_rows(xp: Any, rows: Any, out: Any) -> None:
    """out[m] = sum over n of rows[n, m], summed in float32 at least."""
    acc: DType = accumulator(rows.dtype)
    if acc == out.dtype:
        xp.add.reduce(rows, axis=0, out=out)
        return
    step = 1024
    for i in range(0, rows.shape[1], step):  # a float32 row, small enough for a temporary
        xp.copyto(
            out[i : i + step], xp.add.reduce(rows[:, i : i + step], axis=0, dtype=acc), casting="unsafe"
        )
