"""A step with one adaptive rate for each row of a matrix."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op
from .update import CHUNK, prepared


class group_adagrad_update(Op):
    """AdaGrad with one rate for each row (`history` is changed in place).

    ``g = clip(rescale_grad*grad)``;  ``history += mean(g**2, axis=1)``;
    ``out = weight - lr*g / sqrt(history + epsilon)``

    weight, grad: (R, C);  history: (R, 1)  ->  out: (R, C), usually `weight` itself. A row_sparse
    gradient changes only its rows.
    """

    op_name = "_contrib_group_adagrad_update"
    inputs = ("weight", "grad", "history")
    in_place = {"out": "weight"}
    mutates = ("history",)
    accepts = "float"
    recomputable = False
    flops_per_input = 8

    @record
    class Attrs:
        lr: float
        rescale_grad: float = 1.0
        clip_gradient: float = -1.0
        epsilon: float = 1e-5

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> Any:
        weight, grad, _ = shapes
        if len(weight) != 2 or grad != weight:
            raise ShapeError(f"weight must be (R, C), and grad too, got {weight} and {grad}.")
        return (weight, weight, (weight[0], 1)), (weight,)

    @staticmethod
    def workspace(a: Any, inputs: Any, outputs: Any, dtype: Any) -> int:
        rows = _rows_at_a_time(inputs[0])
        return rows * (2 * inputs[0][1] + 1) * dtype.itemsize

    @staticmethod
    def forward(xp: Any, a: Any, weight: Any, grad: Any, history: Any, *, out: Any, work: Any) -> None:
        count, width = _rows_at_a_time(weight.shape), weight.shape[1]
        scratch = work[: count * (2 * width + 1) * weight.itemsize].view(weight.dtype)
        steps, squares = scratch[: 2 * count * width].reshape(2, count, width)
        means = scratch[2 * count * width :].reshape(count, 1)
        for begin in range(0, len(weight), max(1, count)):
            w, g, h, o = (x[begin : begin + count] for x in (weight, grad, history, out))
            step, square, mean = (x[: len(w)] for x in (steps, squares, means))
            g = prepared(xp, a, g, step)
            xp.multiply(g, g, out=square)
            xp.mean(square, axis=1, keepdims=True, out=mean)
            xp.add(h, mean, out=h)
            xp.add(h, a.epsilon, out=mean)
            xp.sqrt(mean, out=mean)
            xp.multiply(g, a.lr, out=step)
            xp.divide(step, mean, out=step)
            xp.subtract(w, step, out=o)


def _rows_at_a_time(weight: Any) -> int:
    return min(weight[0], max(1, CHUNK // max(1, weight[1])))
