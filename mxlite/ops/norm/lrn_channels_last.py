"""Local response normalization of channels-last arrays."""

from __future__ import annotations

from typing import Any

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from .lrn import LRN


class LrnChannelsLast(Op):
    """Divide by a power of the squares of neighbouring channels; see LRN.

    data: (N, *S, C)  ->  out: as data. Each position is a sample of LRN that has no positions.
    """

    op_name = "_lrn_channels_last"
    inputs = ("data",)
    accepts = "float"
    in_place = LRN.in_place
    backward_in_place = LRN.backward_in_place
    cheap = True
    Attrs = LRN.Attrs
    infer_shape = LRN.infer_shape
    flops = LRN.flops

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return LRN.workspace(a, (_rows(inputs[0]),), (_rows(inputs[0]),), dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return LRN.backward_workspace(a, (_rows(inputs[0]),), (_rows(inputs[0]),), dtype)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            shape = _rows(data.shape)
            LRN.forward(xp, a, data.reshape(shape), out=out.reshape(shape), work=work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> None:
        if d_data is not None:
            shape = _rows(data.shape)
            d, x, result = (v.reshape(shape) for v in (d_out, data, d_data))
            LRN.backward(xp, a, d, x, d_data=result, work=work)


def _rows(shape: Shape) -> Shape:
    """All positions of all samples, and the channels."""
    rows = 1
    for d in shape[:-1]:
        rows *= d
    return rows, shape[-1]
