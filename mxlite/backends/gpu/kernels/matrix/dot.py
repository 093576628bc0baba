"""dot, batch_dot and linalg_gemm as matrix products in place; transposes are strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.linalg.linalg import batch_dot, dot, DotToLhs, DotToRhs
from .....ops.linalg.matrices import LinalgGemm, LinalgGemm2
from ....base import ChosenKernel, Request
from ....elementwise.expression import Writer
from ...matrix.products import products, rows_along, Side, Term
from ...rows import gradient_of
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


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def forward(sides: Callable[[Request], Sides], x: str, y: str) -> Any:
        def row(r: Request) -> ChosenKernel | None:
            return products(device, r, [Term(x, y, "out", sides(r), alpha=getattr(r.attrs, "alpha", 1.0))])

        return row

    def backward(sides: Callable[[Request], Sides], x: str, y: str) -> Any:
        def row(r: Request) -> ChosenKernel | None:
            return products(device, r, _back(sides(r), x, y, getattr(r.attrs, "alpha", 1.0)))

        return row

    def to_side(r: Request) -> ChosenKernel | None:
        """One factor's gradient, an operator of its own: `data` is the other factor, `like` the shape."""
        _, other, like = r.inputs
        lhs = r.op is DotToLhs
        left, right, out = _of_dot(*((like, other) if lhs else (other, like)), r.attrs)
        if lhs:
            return products(device, r, [Term("data", "other", "out", (out, right.other, left))])
        return products(device, r, [Term("other", "data", "out", (left.other, out, right))])

    def scaled(r: Request, given: str, made: str) -> Any:
        """Calls that write beta times an array."""
        w = Writer()
        expression, constants = w.expression([w.input() * w.constant(float(r.attrs.beta))])
        shape, dtype = (prod(r.outputs[0]),), r.dtype
        loop = Loop(device, expression, constants, [shape], [dtype], shape, [dtype])

        def calls(a: Any, arrays: Mapping[str, Any], work: int) -> Sequence[Run]:
            return [] if arrays[made] is None else [loop.call(arrays[given], arrays[made])]

        return calls

    def gemm(r: Request) -> ChosenKernel | None:
        term = Term("A", "B", "out", _matrices(r), alpha=r.attrs.alpha, beta=1.0)
        return products(device, r, [term], scaled(r, "C", "out"))

    def gemm_gradient(r: Request) -> ChosenKernel | None:
        terms = _back(_matrices(r), "A", "B", r.attrs.alpha)
        return products(device, r, terms, scaled(r, "d_out", "d_C"))

    return {
        dot: [forward(_dot, "lhs", "rhs")],
        gradient_of(dot): [backward(_dot, "lhs", "rhs")],
        DotToLhs: [to_side],
        DotToRhs: [to_side],
        batch_dot: [forward(_matrices, "lhs", "rhs")],
        gradient_of(batch_dot): [backward(_matrices, "lhs", "rhs")],
        LinalgGemm2: [forward(_matrices, "A", "B")],
        gradient_of(LinalgGemm2): [backward(_matrices, "A", "B")],
        LinalgGemm: [gemm],
        gradient_of(LinalgGemm): [gemm_gradient],
    }
