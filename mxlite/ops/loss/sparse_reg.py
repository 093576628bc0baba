"""IdentityAttachKLSparseReg."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, require_rank, Shapes, Types
from ..reduce.channels import channel_sum, sum_piece
from ..scratch import accumulator, carve, in_accumulator, Piece, scratch_bytes


class IdentityAttachKLSparseReg(Op):
    """Identity whose gradient also pushes the mean of each channel towards `sparseness_target`.

    data: (N, C, ...), numbers in (0, 1), say a sigmoid's;  moving_avg: (C,), a state  ->  out: as data.

    `penalty` times the Kullback-Leibler divergence of s, `sparseness_target`, and q, a channel's
    mean, is added, both taken as the probabilities of a coin:

        d_data = d_out + penalty * ((1 - s) / (1 - q) - s / q)

    q is a moving average; **backward moves it first**, ``q = momentum * q + (1 - momentum) * mean``, once for
    each call. (Of data with more than two axes MXNet 1.9.1 averages the wrong elements.)
    """

    inputs = ("data", "moving_avg")
    aux = ("moving_avg",)
    inferred = ("moving_avg",)
    initial = {"moving_avg": '["zero", {}]'}
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    backward_mutates = ("moving_avg",)
    flops_per_output = 0

    @record
    class Attrs:
        sparseness_target: float = 0.1
        penalty: float = 0.001
        momentum: float = 0.9

        def __post_init__(self) -> None:
            if not 0 < self.sparseness_target < 1:
                raise OpAttributeError(f"sparseness_target must be in (0, 1), got {self.sparseness_target}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 2, "data")
        return (data, data[1:2]), (data,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, average = dtypes
        require_kind(cls, data)
        wide = in_accumulator(data, ("moving_avg",), (average,))
        return (data, average if wide is None else wide), (data,)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0])

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, moving_avg: Any, *, out: Any) -> None:
        if out is not None:
            xp.copyto(out, data)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, moving_avg: Any, *, d_data: Any, work: Any) -> None:
        view = _view(out.shape)
        part, (mean, push) = carve(work, _pieces(out.shape, out.dtype))
        if out.size:
            channel_sum(xp, out.reshape(view), part, mean)
            xp.multiply(mean, (1 - a.momentum) / (view[0] * view[2]), out=mean)
            xp.multiply(moving_avg, a.momentum, out=moving_avg)
            xp.add(moving_avg, mean, out=moving_avg)
        if d_data is None:
            return
        xp.subtract(1, moving_avg, out=push)
        xp.divide(a.penalty * (1 - a.sparseness_target), push, out=push)
        xp.divide(a.penalty * a.sparseness_target, moving_avg, out=mean)
        xp.subtract(push, mean, out=push)
        xp.add(d_out.reshape(view), push[:, None], out=d_data.reshape(view), casting="unsafe")


def _view(shape: Shape) -> tuple[int, int, int]:
    return shape[0], shape[1], prod(shape[2:])


def _pieces(shape: Shape, dtype: DType) -> list[Piece]:
    acc = accumulator(dtype)
    n, c, p = _view(shape)
    return [sum_piece(n, c, p, acc), ((2, c), acc)]
