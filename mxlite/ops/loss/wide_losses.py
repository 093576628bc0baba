"""Losses of 16-bit data with float32 results: mixed precision inlines the cast before them.

The cast's array, twice the size of the data, exists neither in forward nor in backward. Results have the same
bits: numbers are cast where they are read, gradients are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..norm.views import View
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .cross_entropy import cross_entropy, softmax_cross_entropy
from .loss import label_scale, rows_gradient, softmax_view, SoftmaxOutput

_Types = tuple[Types, Types]


class WideSoftmaxOutput(SoftmaxOutput):
    """SoftmaxOutput with an inlined cast: probabilities in float32 for data of 16 bits.

    data: (N, K);  label: (N,)  ->  out: (N, K), float32 (float64 for that). See SoftmaxOutput.
    """

    op_name = "_wide_softmax_output"
    aliases = ()
    in_place = {}
    backward_in_place = {}

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> _Types:
        return _types(cls, *dtypes)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_box(softmax_view(a, inputs[0]), dtype))

    @staticmethod
    def backward(  # type: ignore[override]
        xp: Any, a: Any, d_out: Any, out: Any, label: Any, *, d_data: Any, work: Any
    ) -> None:
        if d_data is None:
            return
        view = softmax_view(a, out.shape)
        n, _, k, _, p = view
        (box,) = carve(work, _box(view, d_data.dtype))
        classes = SoftmaxOutput.has_classes(a, out.shape, label.shape)
        labels = label.reshape(-1) if classes else label.reshape(n, k, p)
        scale = label_scale(a, view, labels) if classes else a.grad_scale
        y, grad = out.reshape(n, k, p), d_data.reshape(n, k, p)
        for i in range(0, n, len(box) or 1):
            rows = slice(i, min(n, i + len(box)))
            block = box[: rows.stop - i]
            if classes:
                xp.copyto(block, y[rows])
                rows_gradient(xp, a, block, labels[i * p : rows.stop * p], scale)
            else:
                xp.subtract(y[rows], labels[rows], out=block, casting="unsafe")
                xp.multiply(block, scale, out=block)
            if d_out is not None:
                xp.multiply(block, d_out.reshape(n, k, p)[rows], out=block)
            xp.copyto(grad[rows], block, casting="unsafe")


class WideSoftmaxCrossEntropy(softmax_cross_entropy):
    """softmax_cross_entropy with an inlined cast: a float32 sum for data of 16 bits.

    data: (N, K);  label: (N,), class numbers  ->  out: (1,), float32 (float64 for that).
    """

    op_name = "_wide_softmax_cross_entropy"

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> _Types:
        return _types(cls, *dtypes)


class WideCrossEntropy(cross_entropy):
    """cross_entropy with an inlined cast: float32 losses for data of 16 bits.

    data: (N, C, ...);  label: (N, ...);  weight: (C,), float32, with `use_weight`  ->  out: float32 (float64
    for that), as label or (1,).
    """

    op_name = "_wide_cross_entropy"

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> _Types:
        ins, outs = _types(cls, *dtypes[:2])
        return (*ins, *(outs[0] for _ in dtypes[2:])), outs


def _types(op: type[Op], data: DType | None, label: DType | None) -> _Types:
    """Types of data, label and result; labels may be of any type, by default the result's."""
    require_kind(op, data)
    wide = None if data is None else accumulator(data)
    return (data, label or wide), (wide,)


def _box(view: View, dtype: DType) -> list[Piece]:
    """Some rows of the gradient before they are rounded."""
    n, _, k, _, p = view
    rows = min(n, max(1, BLOCK // max(1, k * p)))
    return [((rows, k, p), accumulator(dtype))]
