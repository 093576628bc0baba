"""dot, batch_dot and linalg_gemm on oneDNN's matrix products; transposes are strides.

And gradients of these and of dense layers that are added to others, see `fused/accumulated_gradient.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.linalg.linalg import batch_dot, dot
from .....ops.linalg.matrices import LinalgGemm, LinalgGemm2
from .....ops.nn.dense import FullyConnected
from ....base import ChosenKernel, connected, Request, Row
from ....fused.accumulated_gradient import AccumulatedGradient
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of
from ...onednn.product import Layout
from ...products import product_of, products, Term
from .dense import BiasSums, sides as dense_sides


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
        return products(r, _gradients(op, r.attrs, found), _scaled(r, "d_out", "d_C") if added else None)

    return {op: forward, op.grad_op: backward}


def _gradients(op: type[Op], a: Any, layouts: tuple[Layout, Layout, Layout]) -> list[Term]:
    """The gradients of both factors."""
    (left, right), (x, y, out), alpha = op.inputs[:2], layouts, getattr(a, "alpha", 1.0)
    by_right = Term(left, "d_out", f"d_{right}", (x.turned, out, y), alpha=alpha)
    if y.is_turned:
        by_right = Term("d_out", left, f"d_{right}", (out.turned, x, y.turned), alpha=alpha)
    return [Term("d_out", right, f"d_{left}", (out, y.turned, x), alpha=alpha), by_right]


def accumulated(r: Request) -> ChosenKernel | None:
    """A gradient with accumulation into the other term, in place or into a copy of it."""
    a = r.attrs
    if a.op not in _SIDES or len(set(r.dtypes)) != 1:
        return None
    ins, outs = a.forward(r.inputs)
    found = _SIDES[a.op](replace(r, op=a.op, attrs=a.attrs, inputs=ins, outputs=outs))
    if found is None:
        return None
    term = _gradients(a.op, a.attrs, found)[a.op.inputs.index(a.of)]._replace(out="out", adds=1.0)
    how = product_of(r.dtype, term)
    if how is None:
        return None
    sums = BiasSums.of(r, found[2]) if a.has_bias else BiasSums(0, None)

    def connect(
        xp: Any, a: Any, d_out: Any, factor: Any, addend: Any, *, out: Any, d_bias: Any, work: Any
    ) -> Run:
        calls = sums.calls(xp, d_out, d_bias, work)
        if address_of(out) != address_of(addend):
            calls.append(partial(xp.copyto, out, addend))
        arrays = {"d_out": d_out, a.factor: factor}
        calls.append(how.bind(arrays[term.x], arrays[term.y], out, None, work))
        return in_turn(calls)

    return connected(connect, max(how.scratch, sums.nbytes), how.name, in_place={"out": ("addend",)})


def _dense(r: Request) -> tuple[Layout, Layout, Layout]:
    data, weight, out = dense_sides(r)
    return data, weight.turned, out


_SIDES: dict[type[Op], Sides] = {
    FullyConnected: _dense,
    dot: _sides,
    batch_dot: _batched_sides,
    LinalgGemm2: _matrices,
}
"""The layouts of products to whose gradients others are added."""


def _scaled(r: Request, source: str, target: str) -> Callable[[Any, Mapping[str, Any]], Sequence[Run]]:
    """Calls before the products: an array times `beta`."""

    def calls(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        if arrays[target] is None:
            return []
        return [partial(xp.multiply, arrays[source], r.attrs.beta, out=arrays[target])]

    return calls


SERVES = ("ops.linalg.linalg", "ops.linalg.matrices", "backends.fused.accumulated_gradient")
ROWS = kernel_rows(
    BOTH,
    {
        **_rows(dot, _sides),
        **_rows(batch_dot, _batched_sides),
        **_rows(LinalgGemm2, _matrices),
        **_rows(LinalgGemm, _matrices),
        AccumulatedGradient: accumulated,
    },
)
