"""A step with one adaptive rate for each row of a matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op
from .recording import Evaluation, evaluation, Rates
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
        rows, width = _rows_at_a_time(inputs[0]), inputs[0][1]
        return rows * ((1 + max(p.scratch for p in _evaluations(a, dtype))) * width + 1) * dtype.itemsize

    @staticmethod
    def forward(xp: Any, a: Any, weight: Any, grad: Any, history: Any, *, out: Any, work: Any) -> None:
        count, width = _rows_at_a_time(weight.shape), weight.shape[1]
        evaluations = _evaluations(a, weight.dtype)
        arrays = 1 + max(p.scratch for p in evaluations)
        real = work[: count * (arrays * width + 1) * weight.itemsize].view(weight.dtype)
        wide, means = real[: arrays * count * width].reshape(arrays, count, width), real[-count:, None]
        square, step = (p.bound(xp, Rates(a.lr, 0)) for p in evaluations)
        for begin in range(0, len(weight), max(1, count)):
            w, g, h, o = (x[begin : begin + count] for x in (weight, grad, history, out))
            squares, *scratch = wide[:, : len(w)]
            mean = means[: len(w)]
            square((g, squares), scratch)
            xp.mean(squares, axis=1, keepdims=True, out=mean)
            xp.add(h, mean, out=h)
            xp.add(h, a.epsilon, out=mean)
            xp.sqrt(mean, out=mean)
            step((w, g, mean, o), scratch)


def _evaluations(a: Any, dtype: Any) -> tuple[Evaluation, Evaluation]:
    """Squares of a gradient; the step with the root of their mean, over the row and over time."""
    a = replace(a, lr=1)
    return evaluation(_squares, a, 1, dtype, apart=True), evaluation(_step, a, 3, dtype)


def _squares(xp: Any, a: Any, r: Any, grad: Any) -> Any:
    grad = prepared(xp, a, grad)
    return grad * grad


def _step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, root: Any) -> Any:
    return weight - prepared(xp, a, grad) * r.lr / root


def _rows_at_a_time(weight: Any) -> int:
    return min(weight[0], max(1, CHUNK // max(1, weight[1])))
