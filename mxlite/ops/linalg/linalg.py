"""Matrix products."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op


@record
class DotAttrs:
    """`forward_stype` is the storage type of a product of sparse arrays; it has no effect on dense ones."""

    transpose_a: bool = False
    transpose_b: bool = False
    forward_stype: str | None = None


class dot(Op):
    """Contraction of the last axis of `lhs` with the first of `rhs`; of matrices, their product.

    lhs: (..., K);  rhs: (K, ...)  ->  out: the other axes of `lhs`, then the other axes of `rhs`; (1,) if
    none. With `transpose_a` the first axis of `lhs` is contracted, (K, ...); with `transpose_b` the last of
    `rhs`. Cost: 2*M*K*N flops.
    """

    inputs = ("lhs", "rhs")
    accepts = "number"
    Attrs = DotAttrs

    @staticmethod
    def infer_shape(a, lhs, rhs):
        if not lhs or not rhs:
            raise ShapeError(
                f"lhs {lhs} and rhs {rhs} must have at least one axis each; multiply numbers instead."
            )
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
        if d_lhs is not None:
            _to_lhs(xp, a, d_out, rhs, d_lhs)
        if d_rhs is not None:
            _to_rhs(xp, a, d_out, lhs, d_rhs)

    @classmethod
    def touched_rows(cls, a, ins, out_rows, csr):
        if ins["lhs"] not in csr or a.transpose_a or a.transpose_b:
            return {}
        return {"rhs": frozenset([("_touched_columns", ins["lhs"], 0)])}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs, how = heads["out"], ins["lhs"], ins["rhs"], _transposes(a)
        return {"lhs": w._dot_to_lhs(d, rhs, lhs, **how), "rhs": w._dot_to_rhs(d, lhs, rhs, **how)}


class _DotGradient(Op):
    """Base: the gradient of one side of a `dot`, from the gradient of its result and the other side."""

    abstract = True
    inputs = ("data", "other", "like")
    shape_only = ("like",)
    accepts = "float"
    Attrs = DotAttrs
    to_lhs: ClassVar[bool]

    @classmethod
    def sides(cls, own, other):
        """This side and the other one as the left and the right side."""
        return (own, other) if cls.to_lhs else (other, own)

    @classmethod
    def infer_shape(cls, a, data, other, like):
        _, (product,) = dot.infer_shape(a, *cls.sides(like, other))
        return (product, other, like), (like,)

    @staticmethod
    def flops(a, inputs, outputs):
        return 2 * prod(inputs[0]) * outputs[0][-1 if outputs[0] else 0]

    @classmethod
    def forward(cls, xp, a, data, other, like, *, out):
        (_to_lhs if cls.to_lhs else _to_rhs)(xp, a, data, other, out)

    @classmethod
    def backward(cls, xp, a, d_out, data, other, *, d_data, d_other):
        if d_data is not None:
            dot.forward(xp, a, *cls.sides(d_out, other), out=d_data)
        if d_other is not None:
            (_to_rhs if cls.to_lhs else _to_lhs)(xp, a, data, d_out, d_other)

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        g, how = heads["out"], _transposes(a)
        to_other = w._dot_to_rhs if cls.to_lhs else w._dot_to_lhs
        return {
            "data": w.dot(*cls.sides(g, ins["other"]), **how),
            "other": to_other(ins["data"], g, ins["other"], **how),
        }


class DotToLhs(_DotGradient):
    """Gradient of `lhs` of a `dot`, from its head gradient and its `rhs`.

    data: the shape of the product;  other: `rhs`;  like: `lhs`, whose shape counts  ->  out: as `like`.
    """

    op_name = "_dot_to_lhs"
    to_lhs = True


class DotToRhs(_DotGradient):
    """Gradient of `rhs` of a `dot`, from its head gradient and its `lhs`.

    data: the shape of the product;  other: `lhs`;  like: `rhs`, whose shape counts  ->  out: as `like`.
    """

    op_name = "_dot_to_rhs"
    to_lhs = False


def _transposes(a):
    return {"transpose_a": a.transpose_a, "transpose_b": a.transpose_b}


def _to_lhs(xp, a, d_out, rhs, d_lhs):
    into, right = _matrices(a, d_lhs, rhs)
    d = d_out.reshape(into.shape[0], right.shape[1])
    # A product into a transposed array is the transposed product into the array itself.
    if a.transpose_a:
        xp.matmul(right, d.T, out=into.T)
    else:
        xp.matmul(d, right.T, out=into)


def _to_rhs(xp, a, d_out, lhs, d_rhs):
    left, into = _matrices(a, lhs, d_rhs)
    d = d_out.reshape(left.shape[0], into.shape[1])
    if a.transpose_b:
        xp.matmul(d.T, left, out=into.T)
    else:
        xp.matmul(left.T, d, out=into)


def _matrices(a, lhs, rhs):
    """The operands as views (M, K) and (K, N)."""
    k = lhs.shape[0] if a.transpose_a else lhs.shape[-1]
    m = prod(lhs.shape[1:] if a.transpose_a else lhs.shape[:-1])
    n = prod(rhs.shape[:-1] if a.transpose_b else rhs.shape[1:])
    left = lhs.reshape(k, m).T if a.transpose_a else lhs.reshape(m, k)
    right = rhs.reshape(n, k).T if a.transpose_b else rhs.reshape(k, n)
    return left, right


class batch_dot(Op):
    """Product of the matrices in the last two axes, one for each index of the axes before.

    lhs: (..., M, K);  rhs: (..., K, N)  ->  out: (..., M, N). With `transpose_a` lhs is (..., K, M), with
    `transpose_b` rhs is (..., N, K). The axes before must be equal. Cost: 2*M*K*N flops a matrix.
    """

    inputs = ("lhs", "rhs")
    accepts = "number"
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

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, lhs, rhs, ta, tb = heads["out"], ins["lhs"], ins["rhs"], a.transpose_a, a.transpose_b
        return {
            "lhs": w.batch_dot(rhs, d, transpose_a=tb, transpose_b=True)
            if ta
            else w.batch_dot(d, rhs, transpose_b=not tb),
            "rhs": w.batch_dot(d, lhs, transpose_a=True, transpose_b=ta)
            if tb
            else w.batch_dot(lhs, d, transpose_a=not ta),
        }
