"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_letters
from typing import Any

import numpy as np

from ....core import FormatError
from ..node import OnnxNode
from ..value import OnnxValue


def matmul(n: OnnxNode) -> OnnxValue:
    return n.builder.matmul(n[0], n[1])


def gemm(n: OnnxNode) -> OnnxValue:
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
    out: OnnxValue = b.op("dot", left, right, transpose_a=over_a, transpose_b=over_b)
    if alpha != 1:
        out = out * alpha
    if more is not None and beta:
        out = b.binary("add", out, more if beta == 1 else more * beta)
    return out


def einsum(n: OnnxNode) -> OnnxValue:
    """Axes of an ellipsis get their own letters; an equation without an arrow gets its right side."""
    b, values = n.builder, n.present()
    left, arrow, right = n.text("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise FormatError(f"equation {left!r} is for {len(terms)} inputs, {len(values)} are there.")
    spare = [c for c in ascii_letters if c not in left + right]
    ranks = [v.rank - len(t.replace("...", "")) for t, v in zip(terms, values) if "..." in t]
    rest = spare[: max(ranks, default=0)]
    if not arrow:
        named = left.replace("...", "").replace(",", "")
        right = "..." * bool(ranks) + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    if min(ranks, default=0) < 0 or len(rest) < max(ranks, default=0):
        raise FormatError(f"equation {left!r} does not fit inputs {[v.shape for v in values]}.")
    lengths: dict[str, int] = {}
    for i, (term, value) in enumerate(zip(terms, values)):
        inside = value.rank - len(term.replace("...", ""))
        terms[i] = term.replace("...", "".join(rest[len(rest) - inside :]))
        if len(terms[i]) != value.rank:
            raise FormatError(f"term {term!r} does not fit an input of shape {value.shape}.")
        for c, length in zip(terms[i], value.shape):
            lengths[c] = max(length, lengths.get(c, 1)) if length else 0
    right = right.replace("...", "".join(rest))
    if any(c not in lengths for c in right):
        raise FormatError(
            f"the right side of equation {left!r} -> {right!r} names an axis that no input has."
        )
    out: OnnxValue = b.op("einsum", *values, subscripts=f"{','.join(terms)}->{right}")
    return b.reshape(out, (lengths[c] for c in right))


def det(n: OnnxNode) -> OnnxValue:
    x = n[0]
    return n.builder.reshape(n.builder.op("_linalg_det", x), x.shape[:-2])


def matmul_integer(n: OnnxNode) -> OnnxValue:
    """Whole numbers less their zero points, in int32."""
    b = n.builder
    left, right = _less_zero(n, 0, 2, -2), _less_zero(n, 1, 3, -1)
    return b.cast(b.matmul(left, right), np.int32)


def _less_zero(n: OnnxNode, place: int, zero_place: int, axis: int) -> OnnxValue:
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
