"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.contraction import contracted
from ...building.value import GraphValue
from ..node import OnnxNode


def matmul(n: OnnxNode) -> GraphValue:
    return n.builder.matmul(n[0], n[1])


def gemm(n: OnnxNode) -> GraphValue:
    """alpha * A' B' + beta * C; the affine map of a layer is FullyConnected."""
    b, left, right, more = n.builder, n[0], n[1], n.get(2)
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    over_a, over_b = n.flag("transA"), n.flag("transB")
    if left.rank != 2 or right.rank != 2:
        raise FormatError(f"needs two matrices, got {left.shape} and {right.shape}.")
    if (
        alpha == 1
        and not over_a
        and over_b
        and (more is None or (beta == 1 and more.shape == right.shape[:1]))
    ):
        inputs = [left, right] if more is None else [left, right, more]
        return b.op("FullyConnected", *inputs, num_hidden=right.shape[0], no_bias=more is None)
    out: GraphValue = b.op("dot", left, right, transpose_a=over_a, transpose_b=over_b)
    if alpha != 1:
        out = out * alpha
    if more is not None and beta:
        out = b.binary("add", out, more if beta == 1 else more * beta)
    return out


def einsum(n: OnnxNode) -> GraphValue:
    return contracted(n.text("equation"), n.present())


def det(n: OnnxNode) -> GraphValue:
    x = n[0]
    return n.builder.reshape(n.builder.op("_linalg_det", x), x.shape[:-2])


def matmul_integer(n: OnnxNode) -> GraphValue:
    """Whole numbers less their zero points, in int32."""
    b = n.builder
    left, right = _less_zero(n, 0, 2, -2), _less_zero(n, 1, 3, -1)
    return b.cast(b.matmul(left, right), np.int32)


def _less_zero(n: OnnxNode, place: int, zero_place: int, axis: int) -> GraphValue:
    """Input less its zero point, one number or one a row (axis -2) or column (-1); in float64, exact."""
    b, x, zero = n.builder, n[place], n.get(zero_place)
    x = b.cast(x, np.float64)
    if zero is None:
        return x
    zero = b.cast(zero, np.float64)
    if zero.rank == 1 and axis == -2 and zero.size > 1:
        zero = b.reshape(zero, (zero.size, 1))
    return b.binary("sub", x, zero)


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "Det": det,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
}
