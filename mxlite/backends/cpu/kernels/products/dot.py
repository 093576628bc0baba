"""dot, batch_dot and linalg_gemm on oneDNN's matrix products; transposes are strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from .....ops.linalg.linalg import batch_dot, dot
from .....ops.linalg.matrices import LinalgGemm, LinalgGemm2
from ....base import ChosenKernel, Request, Row
from ...kernel_row import BOTH, kernel_rows
from ...onednn import Run
from ...onednn.product import Layout
from ...products import products, Term


def _turned(x: Layout, turn: bool) -> Layout:
    return x.turned if turn else x


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


def _batched_sides(r: Request) -> tuple[Layout, Layout, Layout]:
    left, right = ((prod(s[:-2]), *s[-2:]) for s in r.inputs[:2])
    out = r.outputs[0]
    return (
        _turned(Layout.dense(*left), r.attrs.transpose_a),
        _turned(Layout.dense(*right), r.attrs.transpose_b),
        Layout.dense(prod(out[:-2]), *out[-2:]),
    )


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


Sides = Callable[[Request], "tuple[Layout, Layout, Layout] | None"]


def _rows(op: Any, sides: Sides) -> dict[Any, Row]:
    """Rows of ``out = alpha * left @ right + beta * C``, C being the third input if there is one, and of its
    gradient.
    """
    left, right, *added = op.inputs

    def forward(r: Request) -> ChosenKernel | None:
        found = sides(r)
        if found is None:
            return None
        term = Term(left, right, "out", found, alpha=getattr(r.attrs, "alpha", 1.0), adds=bool(added))
        return products(r, [term], _scaled(r, "C", "out") if added else None)

    def backward(r: Request) -> ChosenKernel | None:
        found = sides(r)
        if found is None:
            return None
        (x, y, out), alpha = found, getattr(r.attrs, "alpha", 1.0)
        terms = [
            Term("d_out", right, f"d_{left}", (out, y.turned, x), alpha=alpha),
            Term(left, "d_out", f"d_{right}", (x.turned, out, y), alpha=alpha),
        ]
        return products(r, terms, _scaled(r, "d_out", "d_C") if added else None)

    return {op: forward, op.grad_op: backward}


def _scaled(r: Request, source: str, target: str) -> Callable[[Any, Mapping[str, Any]], Sequence[Run]]:
    """Calls before the products: an array times `beta`."""

    def calls(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        if arrays[target] is None:
            return []
        return [partial(xp.multiply, arrays[source], r.attrs.beta, out=arrays[target])]

    return calls


SERVES = ("ops.linalg.linalg", "ops.linalg.matrices")
ROWS = kernel_rows(
    BOTH,
    {
        **_rows(dot, _sides),
        **_rows(batch_dot, _batched_sides),
        **_rows(LinalgGemm2, _matrices),
        **_rows(LinalgGemm, _matrices),
    },
)
