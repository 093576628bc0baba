"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..core.errors import ShapeError
from ..graph.opdef import Op


@dataclass(frozen=True)
class DotAttrs:
    """`forward_stype` chooses among sparse forms in MXNet; here it is read and has no effect."""

    transpose_a: bool = False
    transpose_b: bool = False
    forward_stype: str | None = None


class dot(Op):
    """Contraction of the last axis of `lhs` with the first of `rhs`; of matrices, their product.

    lhs: (..., K);  rhs: (K, ...)  ->  out: the axes left of `lhs`, then those left of `rhs`; (1,) if none.
    With `transpose_a` the first axis of `lhs` is contracted, (K, ...); with `transpose_b` the last of `rhs`.
    Cost: 2*M*K*N flops.
    """

    inputs = ("lhs", "rhs")
    Attrs = DotAttrs

    @staticmethod
    def infer_shape(a, lhs, rhs):
        left, k = (lhs[1:], lhs[0]) if a.transpose_a else (lhs[:-1], lhs[-1])
        right, k2 = (rhs[:-1], rhs[-1]) if a.transpose_b else (rhs[1:], rhs[0])
        if k != k2:
            raise ShapeError(
                f"lhs {lhs} and rhs {rhs} must agree in the contracted axis, got {k} and {k2} "
                f"(transpose_a={a.transpose_a}, transpose_b={a.transpose_b})."
            )
        return (lhs, rhs), ((left + right) or (1,),)

    @staticmethod
    def flops(a, inputs, outputs):
        return 2 * prod(outputs[0]) * inputs[0][0 if a.transpose_a else -1]

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        left, right = _matrices(a, lhs, rhs)
        xp.matmul(left, right, out=out.reshape(left.shape[0], right.shape[1]))

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs):
        left, right = _matrices(a, lhs, rhs)
        d = d_out.reshape(left.shape[0], right.shape[1])
        if d_lhs is not None:
            into, _ = _matrices(a, d_lhs, rhs)
            # A product into a transposed array is the transposed product into the array itself.
            if a.transpose_a:
                xp.matmul(right, d.T, out=into.T)
            else:
                xp.matmul(d, right.T, out=into)
        if d_rhs is not None:
            _, into = _matrices(a, lhs, d_rhs)
            if a.transpose_b:
                xp.matmul(d.T, left, out=into.T)
            else:
                xp.matmul(left.T, d, out=into)


def _matrices(a, lhs, rhs):
    """Views (M, K) and (K, N)."""
    k = lhs.shape[0] if a.transpose_a else lhs.shape[-1]
    left = lhs.reshape(k, -1).T if a.transpose_a else lhs.reshape(-1, k)
    right = rhs.reshape(-1, k).T if a.transpose_b else rhs.reshape(k, -1)
    return left, right


class batch_dot(Op):
    """Product of the matrices in the last two axes, one for each index of the axes before.

    lhs: (..., M, K);  rhs: (..., K, N)  ->  out: (..., M, N). With `transpose_a` lhs is (..., K, M), with
    `transpose_b` rhs is (..., N, K). The axes before must be equal. Cost: 2*M*K*N flops a matrix.
    """

    inputs = ("lhs", "rhs")
    Attrs = DotAttrs

    @staticmethod
    def infer_shape(a, lhs, rhs):
        if len(lhs) < 3 or len(lhs) != len(rhs) or lhs[:-2] != rhs[:-2]:
            raise ShapeError(
                f"lhs {lhs} and rhs {rhs} must be (..., M, K) and (..., K, N) with equal batch axes."
            )
        m, k = lhs[:-3:-1] if a.transpose_a else lhs[-2:]
        k2, n = rhs[:-3:-1] if a.transpose_b else rhs[-2:]
        if k != k2:
            raise ShapeError(
                f"lhs {lhs} and rhs {rhs} must agree in the contracted axis, got {k} and {k2} "
                f"(transpose_a={a.transpose_a}, transpose_b={a.transpose_b})."
            )
        return (lhs, rhs), ((*lhs[:-2], m, n),)

    @staticmethod
    def flops(a, inputs, outputs):
        return 2 * prod(outputs[0]) * inputs[0][-2 if a.transpose_a else -1]

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        left = lhs.swapaxes(-1, -2) if a.transpose_a else lhs
        right = rhs.swapaxes(-1, -2) if a.transpose_b else rhs
        xp.matmul(left, right, out=out)

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs):
        if d_lhs is not None:
            right = rhs if a.transpose_b else rhs.swapaxes(-1, -2)
            if a.transpose_a:
                xp.matmul(right.swapaxes(-1, -2), d_out.swapaxes(-1, -2), out=d_lhs)
            else:
                xp.matmul(d_out, right, out=d_lhs)
        if d_rhs is not None:
            left = lhs if a.transpose_a else lhs.swapaxes(-1, -2)
            if a.transpose_b:
                xp.matmul(d_out.swapaxes(-1, -2), left.swapaxes(-1, -2), out=d_rhs)
            else:
                xp.matmul(left, d_out, out=d_rhs)
