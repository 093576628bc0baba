"""dot, batch_dot and linalg_gemm on oneDNN's matrix products; transposes are strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from .....ops.linalg.linalg import batch_dot, dot
from .....ops.linalg.matrices import LinalgGemm, LinalgGemm2
from ....base import ChosenKernel, Request
from ...kernel_row import BOTH, kernel_rows
from ...onednn import Run
from ...onednn.product import Layout
from ...products import products, Term


def _turned(x: Layout, turn: bool) -> Layout:
    return x.turned if turn else x


def _back(
    x: Layout, y: Layout, out: Layout, names: tuple[str, str, str, str, str], alpha: float = 1.0
) -> list[Term]:
    """Terms of the factors' gradients for out = alpha * x @ y. names: those of d_out, x, y, d_x, d_y."""
    d, left, right, d_left, d_right = names
    return [
        Term(d, right, d_left, (out, y.turned, x), alpha=alpha),
        Term(left, d, d_right, (x.turned, out, y), alpha=alpha),
    ]


def _sides(r: Request) -> tuple[Layout, Layout, Layout]:
    """Layouts of lhs (M, K), rhs (K, N) and out (M, N) of a `dot`."""
    lhs, rhs = r.inputs
    a = r.attrs
    k = lhs[0] if a.transpose_a else lhs[-1]
    m = prod(lhs[1:] if a.transpose_a else lhs[:-1])
    n = prod(rhs[:-1] if a.transpose_b else rhs[1:])
    left = Layout.dense(k, m).turned if a.transpose_a else Layout.dense(m, k)
    right = Layout.dense(n, k).turned if a.transpose_b else Layout.dense(k, n)
    return left, right, Layout.dense(m, n)


def _dot(r: Request) -> ChosenKernel | None:
    return products(r, [Term("lhs", "rhs", "out", _sides(r))])


def _dot_gradient(r: Request) -> ChosenKernel | None:
    return products(r, _back(*_sides(r), ("d_out", "lhs", "rhs", "d_lhs", "d_rhs")))


def _batched_sides(r: Request) -> tuple[Layout, Layout, Layout]:
    left, right = ((prod(s[:-2]), *s[-2:]) for s in r.inputs[:2])
    out = r.outputs[0]
    return (
        _turned(Layout.dense(*left), r.attrs.transpose_a),
        _turned(Layout.dense(*right), r.attrs.transpose_b),
        Layout.dense(prod(out[:-2]), *out[-2:]),
    )


def _batch_dot(r: Request) -> ChosenKernel | None:
    return products(r, [Term("lhs", "rhs", "out", _batched_sides(r))])


def _batch_dot_gradient(r: Request) -> ChosenKernel | None:
    return products(r, _back(*_batched_sides(r), ("d_out", "lhs", "rhs", "d_lhs", "d_rhs")))


def _matrices(r: Request) -> tuple[Layout, Layout, Layout] | None:
    """Layouts of A, B, out of a linalg_gemm; None if rows lie along another axis than the last but one."""
    shape = r.inputs[0]
    if r.attrs.axis % len(shape) != len(shape) - 2:
        return None
    return _batched_sides(r) if len(shape) > 2 else _plain_sides(r)


def _plain_sides(r: Request) -> tuple[Layout, Layout, Layout]:
    return (
        _turned(Layout.dense(*r.inputs[0]), r.attrs.transpose_a),
        _turned(Layout.dense(*r.inputs[1]), r.attrs.transpose_b),
        Layout.dense(*r.outputs[0]),
    )


def _gemm2(r: Request) -> ChosenKernel | None:
    sides = _matrices(r)
    return None if sides is None else products(r, [Term("A", "B", "out", sides, alpha=r.attrs.alpha)])


def _gemm2_gradient(r: Request) -> ChosenKernel | None:
    sides = _matrices(r)
    if sides is None:
        return None
    return products(r, _back(*sides, ("d_out", "A", "B", "d_A", "d_B"), r.attrs.alpha))


def _gemm(r: Request) -> ChosenKernel | None:
    sides = _matrices(r)
    if sides is None:
        return None

    def scaled(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        return [partial(xp.multiply, arrays["C"], r.attrs.beta, out=arrays["out"])]

    return products(r, [Term("A", "B", "out", sides, alpha=r.attrs.alpha, adds=True)], scaled)


def _gemm_gradient(r: Request) -> ChosenKernel | None:
    sides = _matrices(r)
    if sides is None:
        return None

    def scaled(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        if arrays["d_C"] is None:
            return []
        return [partial(xp.multiply, arrays["d_out"], r.attrs.beta, out=arrays["d_C"])]

    return products(r, _back(*sides, ("d_out", "A", "B", "d_A", "d_B"), r.attrs.alpha), scaled)


SERVES = ("ops.linalg.linalg", "ops.linalg.matrices")
ROWS = kernel_rows(
    BOTH,
    {
        dot: _dot,
        dot.grad_op: _dot_gradient,
        batch_dot: _batch_dot,
        batch_dot.grad_op: _batch_dot_gradient,
        LinalgGemm2: _gemm2,
        LinalgGemm2.grad_op: _gemm2_gradient,
        LinalgGemm: _gemm,
        LinalgGemm.grad_op: _gemm_gradient,
    },
)
