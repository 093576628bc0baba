"""Batch normalization and a rectifier, and the sum of a residual network after them, in one operator."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .norm_act import NormAct, NormActAttrs
from .norm_arrays import NormVectors


class NormActSum(Op):
    """``out = _norm_act(data) + addend``: the normalized and rectified array is never stored.

    data, addend: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  out: as data;  mean, var: (C,), both hidden.

    Attributes and statistics are those of `_norm_act` without its `add`. Data of two bytes is rounded once.
    It replaces two nodes whose gradients exist already (`backends/passes/fusion/add_epilogue.py`), and has
    none.
    """

    op_name = "_norm_act_sum"
    inputs = (*NormAct.inputs[:5], "addend")
    outputs = NormAct.outputs
    hidden = NormAct.hidden
    accepts = "float"
    typed_by_data = True
    aux = NormAct.aux
    inferred = NormAct.inferred
    cheap = True
    Attrs = NormActAttrs

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return {"out": ("addend", "data")}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, outs = NormAct.infer_shape(a, *shapes[:5])
        return (*ins, outs[0]), outs

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        return NormAct.infer_type(a, *dtypes)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return NormAct.flops(a, inputs[:5], outputs) + prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype)) + NormAct.workspace(a, inputs[:5], outputs, dtype)

    @staticmethod
    @grouped
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        addend: Any,
        *,
        out: Any,
        mean: Any,
        var: Any,
        work: Any,
        train: bool,
    ) -> None:
        pieces = _pieces(data.shape, data.dtype)
        (line,) = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        NormAct.forward.kernel(xp, a, data, vectors, out=line, mean=mean, var=var, work=rest, train=train)
        if out is not None:
            xp.add(line, addend, out=line)
            xp.copyto(out, line, casting="unsafe")


def _pieces(data: Shape, dtype: DType) -> list[Piece]:
    """Scratch for the rectified array."""
    return [(data, accumulator(dtype))]
