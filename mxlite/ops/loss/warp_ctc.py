"""CTC as an output layer, in the form of MXNet's plugin for Baidu's warp-ctc."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..scratch import carve, Piece, scratch_bytes
from .ctc import ctc_pieces, CTCLoss, Paths
from .softmax import softmax

_CTC = CTCLoss.Attrs()
SOFTMAX_ATTRS = softmax.Attrs()


class WarpCTC(Op):
    """Softmax of every step; the gradient is that of the CTC loss of each sample.

    data: (T * N, C), T = `input_length` steps of N samples, step by step;  label: (N * L,) or (N, L) with L =
    `label_length`, padded with 0, the blank  ->  out: (T * N, C), the softmax. Head gradients are ignored;
    the gradient of `data` is the sum over samples of that of `CTCLoss`. Backward keeps `data` and `label`.
    """

    inputs = ("data", "label")
    inferred = ("label",)
    is_loss = True
    accepts = "float"

    @record
    class Attrs:
        label_length: int
        input_length: int

        def __post_init__(self) -> None:
            for name in ("label_length", "input_length"):
                if getattr(self, name) < 1:
                    raise OpAttributeError(f"{name} must be at least 1, got {getattr(self, name)}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label = shapes
        assert data is not None
        if len(data) != 2 or data[0] % a.input_length:
            raise ShapeError(
                f"data must be (steps * samples, classes) with {a.input_length} steps (input_length), "
                f"got {data}."
            )
        samples = data[0] // a.input_length
        if label is None:
            label = (samples * a.label_length,)
        if prod(label) != samples * a.label_length:
            raise ShapeError(
                f"label must hold {a.label_length} numbers (label_length) for each of {samples} samples, "
                f"got {label}."
            )
        return (data, label), (data,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        require_kind(cls, dtypes[0])
        return (dtypes[0], dtypes[1] or dtypes[0]), (dtypes[0],)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return softmax.workspace(SOFTMAX_ATTRS, inputs[:1], outputs, dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_backward_pieces(a, inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, label: Any, *, out: Any, work: Any) -> None:
        shapes = (data.shape,), (data.shape,)
        softmax.forward(xp, SOFTMAX_ATTRS, data, out=out, work=work, shapes=shapes)

    @staticmethod
    def backward(xp: Any, a: Any, data: Any, label: Any, *, d_data: Any, work: Any) -> None:
        if d_data is None or not data.size:
            return
        samples = data.shape[0] // a.input_length
        steps, grads = (x.reshape(a.input_length, samples, -1) for x in (data, d_data))
        pieces = _backward_pieces(a, data.shape, data.dtype)
        head = carve(work, pieces)[-1]
        head.fill(1)
        paths = Paths(
            xp, _CTC, steps.shape, label.reshape(samples, -1), None, None, work, data.dtype, len(steps) + 1
        )
        alpha = paths.rows
        paths.begin(alpha[0])
        for t, step in enumerate(steps):
            paths.classes(step)
            paths.forward(t, alpha[t], alpha[t + 1])
        paths.end()
        for t in range(len(steps) - 1, -1, -1):
            paths.classes(steps[t])
            paths.posterior(t, alpha[t + 1], head, grads[t])


def _backward_pieces(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """CTCLoss's scratch, and its head gradient."""
    samples = data[0] // a.input_length
    shape, label = (a.input_length, samples, data[1]), (samples, a.label_length)
    return [*ctc_pieces(shape, label, dtype, a.input_length + 1).values(), ((samples,), dtype)]
