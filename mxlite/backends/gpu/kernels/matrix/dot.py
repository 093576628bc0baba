"""dot, batch_dot and linalg_gemm as matrix products in place; transposes are strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from .....ops.linalg.linalg import batch_dot, dot, DotToLhs, DotToRhs
from .....ops.linalg.matrices import LinalgGemm, LinalgGemm2
from ....base import ChosenKernel, Request
from ...matrix.products import products, rows_along, Side, Term
from ...rows import Row, table
from ...runtime.device import Device, Run
from ..arithmetic.elementwise import Loop

Sides = tuple[Side, Side, Side]


def _of_dot(lhs: Sequence[int], rhs: Sequence[int], a: Any) -> Sides:
    """Sides of lhs (M, K), rhs (K, N) and out (M, N) of a `dot`."""
    k = lhs[0] if a.transpose_a else lhs[-1]
    m = prod(lhs[1:] if a.transpose_a else lhs[:-1])
    n = prod(rhs[:-1] if a.transpose_b else rhs[1:])
    left = Side.dense(k, m).other if a.transpose_a else Side.dense(m, k)
    right = Side.dense(n, k).other if a.transpose_b else Side.dense(k, n)
    return left, right, Side.dense(m, n)


def _dot(r: Request) -> Sides:
    lhs, rhs = r.inputs
    return _of_dot(lhs, rhs, r.attrs)


def _matrices(r: Request) -> Sides:
    """Sides of A, B and out of a product of matrices in two axes, batched over the other axes."""
    a = r.attrs
    axis = getattr(a, "axis", -2)
    left, right = rows_along(r.inputs[0], axis, a.transpose_a), rows_along(r.inputs[1], axis, a.transpose_b)
    return left, right, rows_along(r.outputs[0], axis)


def _back(sides: Sides, x: str, y: str, alpha: float) -> list[Term]:
    """Terms of the factors' gradients for out = alpha * x @ y."""
    left, right, out = sides
    return [
        Term("d_out", y, f"d_{x}", (out, right.other, left), alpha=alpha),
        Term(x, "d_out", f"d_{y}", (left.other, out, right), alpha=alpha),
    ]


def _forward(device: Device, r: Request, sides: Callable[[Request], Sides], x: str, y: str) -> Any:
    return products(device, r, [Term(x, y, "out", sides(r), alpha=getattr(r.attrs, "alpha", 1.0))])


def _backward(device: Device, r: Request, sides: Callable[[Request], Sides], x: str, y: str) -> Any:
    return products(device, r, _back(sides(r), x, y, getattr(r.attrs, "alpha", 1.0)))


def _both(*how: Any) -> tuple[Row, Row]:
    """Rows of a product and of its gradient; `how`: its sides, and the names of its factors."""
    return lambda device, r: _forward(device, r, *how), lambda device, r: _backward(device, r, *how)


def _to_side(device: Device, r: Request) -> ChosenKernel | None:
    """One factor's gradient, an operator of its own: `data` is the other factor, `like` the shape."""
    _, other, like = r.inputs
    lhs = r.op is DotToLhs
    left, right, out = _of_dot(*((like, other) if lhs else (other, like)), r.attrs)
    if lhs:
        return products(device, r, [Term("data", "other", "out", (out, right.other, left))])
    return products(device, r, [Term("other", "data", "out", (left.other, out, right))])


def _scaled(device: Device, r: Request, given: str, made: str) -> Any:
    """Calls that write beta times an array."""
    shape, dtype = (prod(r.outputs[0]),), r.dtype
    loop = Loop(device, lambda t, x: x * t.constant(r.attrs.beta), [shape], [dtype], shape, dtype)

    def calls(a: Any, arrays: Mapping[str, Any], work: int) -> Sequence[Run]:
        return [] if arrays[made] is None else [loop.call(arrays[given], arrays[made])]

    return calls


def _gemm(device: Device, r: Request) -> ChosenKernel | None:
    term = Term("A", "B", "out", _matrices(r), alpha=r.attrs.alpha, beta=1.0)
    return products(device, r, [term], _scaled(device, r, "C", "out"))


def _gemm_gradient(device: Device, r: Request) -> ChosenKernel | None:
    terms = _back(_matrices(r), "A", "B", r.attrs.alpha)
    return products(device, r, terms, _scaled(device, r, "d_out", "d_C"))


rows = table(
    (dot, *_both(_dot, "lhs", "rhs")),
    *((op, _to_side, None) for op in (DotToLhs, DotToRhs)),
    (batch_dot, *_both(_matrices, "lhs", "rhs")),
    (LinalgGemm2, *_both(_matrices, "A", "B")),
    (LinalgGemm, _gemm, _gemm_gradient),
)
