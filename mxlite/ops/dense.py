"""FullyConnected."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..core.errors import OpAttributeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes
from .scratch import accumulator


class FullyConnected(Op):
    """Affine map, ``out = data @ weight.T + bias``.

    data: (N, ...) read as (N, K);  weight: (M, K);  bias: (M,)  ->  out: (N, M), where M = `num_hidden`.
    With `flatten=False` only the last axis is mapped: (..., K) -> (..., M). Cost: 2 * N * M * K flops.
    """

    inputs = ("data", "weight", "bias")
    inferred = ("weight", "bias")

    @dataclass(frozen=True)
    class Attrs:
        num_hidden: int
        no_bias: bool = False
        flatten: bool = True

        def __post_init__(self) -> None:
            if self.num_hidden < 1:
                raise OpAttributeError(f"num_hidden must be at least 1, got {self.num_hidden}.")

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs[:2] if a.no_bias else cls.inputs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        lead, width = (data[:1], prod(data[1:])) if a.flatten else (data[:-1], prod(data[-1:]))
        return (data, (a.num_hidden, width), (a.num_hidden,))[: len(shapes)], ((*lead, a.num_hidden),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * (2 * inputs[1][1] + (not a.no_bias))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any) -> None:
        if out is None:
            return
        xp.matmul(data.reshape(-1, weight.shape[1]), weight.T, out=out.reshape(-1, len(weight)))
        if bias is not None:
            xp.add(out, bias, out=out)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, weight: Any, *, d_data: Any, d_weight: Any, d_bias: Any
    ) -> None:
        d = d_out.reshape(-1, len(weight))
        if d_data is not None:
            xp.matmul(d, weight, out=d_data.reshape(-1, weight.shape[1]))
        if d_weight is not None:
            xp.matmul(d.T, data.reshape(-1, weight.shape[1]), out=d_weight)
        if d_bias is not None:
            add_rows(xp, d, d_bias)


def add_rows(xp: Any, rows: Any, out: Any) -> None:
    """out[m] = sum over n of rows[n, m], added up in float32 at least."""
    acc: DType = accumulator(rows.dtype)
    if acc == out.dtype:
        xp.add.reduce(rows, axis=0, out=out)
        return
    step = 1024
    for i in range(0, rows.shape[1], step):  # a float32 row of its own, small enough for a temporary
        xp.copyto(
            out[i : i + step], xp.add.reduce(rows[:, i : i + step], axis=0, dtype=acc), casting="unsafe"
        )
