"""Products of matrices, and their diagonals and triangles: `mx.nd.linalg.gemm` and others.

The names and parameters are BLAS's, as MXNet has them. Each works on (..., rows, columns), one matrix for
every index of the axes before.
"""

from __future__ import annotations

from math import isqrt, prod
from typing import ClassVar

from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import pieces
from ..scratch import carve, scratch_bytes


class Matrix(Op):
    """An operator on matrices: float32 and float64 only, the types of BLAS and LAPACK."""

    inputs: ClassVar[tuple[str, ...]] = ("A",)
    accepts = "float"

    @classmethod
    def infer_type(cls, a, *dtypes):
        if any(d is not None and d.itemsize < 4 for d in dtypes):
            raise DTypeError(f"needs float32 or float64, got {[str(d) for d in dtypes]}; convert with Cast.")
        return super().infer_type(a, *dtypes)


def require_matrix(shape, name="A", square=True):
    """Raise ShapeError unless the last two axes make a (square) matrix."""
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        raise ShapeError(f"{name} must be (..., {'N, N' if square else 'M, N'}), got {shape}.")


def transposed(x):
    """Every matrix transposed; a view."""
    return x.swapaxes(-1, -2)


def turned(x, turn):
    """`x`, or its transpose if `turn`."""
    return x.swapaxes(-1, -2) if turn else x


def chunks(*arrays, size=1024):
    """Matching parts of arrays (B, ...), at most `size` elements of the first, at least one matrix, each."""
    count = len(arrays[0])
    step = max(1, size // max(1, prod(arrays[0].shape[1:])))
    for begin in range(0, count, step):
        yield [None if x is None else x[begin : begin + step] for x in arrays]


def batch(x, core=2):
    """(B, ...) with `core` axes after the first; a view."""
    if x is None:
        return None
    lead = x.shape[: x.ndim - core] if core else x.shape
    return x.reshape(prod(lead), *(x.shape[x.ndim - core :] if core else ()))


@record
class Gemm2Attrs:
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    axis: int = -2


@record
class GemmAttrs:
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    axis: int = -2


def _rows(a, x):
    """View of `x` with the axis of its matrices' rows moved to the position before the last."""
    return x if a.axis % x.ndim == x.ndim - 2 else x.swapaxes(a.axis, -2)


def _row_shape(a, shape):
    if len(shape) < 2 or not -len(shape) <= a.axis < len(shape) - 1 or a.axis == -1:
        raise ShapeError(
            f"A and B must have at least 2 axes, and axis {a.axis} must not be the last; got {shape}."
        )
    moved = list(shape)
    moved[a.axis], moved[-2] = moved[-2], moved[a.axis]
    return tuple(moved)


def _product_shape(a, left, right):
    x, y = _row_shape(a, left), _row_shape(a, right)
    m, k = x[:-3:-1] if a.transpose_a else x[-2:]
    k2, n = y[:-3:-1] if a.transpose_b else y[-2:]
    if x[:-2] != y[:-2] or k != k2:
        raise ShapeError(
            f"A {left} and B {right} do not multiply: batch axes must be equal and so must {k} and {k2} "
            f"(transpose_a={a.transpose_a}, transpose_b={a.transpose_b}, axis={a.axis})."
        )
    return _row_shape(a, (*x[:-2], m, n))


def _multiply(xp, a, left, right, out):
    xp.matmul(
        turned(_rows(a, left), a.transpose_a), turned(_rows(a, right), a.transpose_b), out=_rows(a, out)
    )
    if a.alpha != 1:
        xp.multiply(out, a.alpha, out=out)


def _multiply_back(xp, a, d_out, left, right, d_left, d_right):
    d = _rows(a, d_out)
    if d_left is not None:
        into = turned(_rows(a, d_left), a.transpose_a)
        xp.matmul(d, transposed(turned(_rows(a, right), a.transpose_b)), out=into)
        if a.alpha != 1:
            xp.multiply(d_left, a.alpha, out=d_left)
    if d_right is not None:
        into = turned(_rows(a, d_right), a.transpose_b)
        xp.matmul(transposed(turned(_rows(a, left), a.transpose_a)), d, out=into)
        if a.alpha != 1:
            xp.multiply(d_right, a.alpha, out=d_right)


def _product_derivative(w, a, d, left, right):
    ta, tb = a.transpose_a, a.transpose_b
    how = {"alpha": a.alpha, "axis": a.axis}
    return {
        "A": w._linalg_gemm2(right, d, transpose_a=tb, transpose_b=True, **how)
        if ta
        else w._linalg_gemm2(d, right, transpose_b=not tb, **how),
        "B": w._linalg_gemm2(d, left, transpose_a=True, transpose_b=ta, **how)
        if tb
        else w._linalg_gemm2(left, d, transpose_a=not ta, **how),
    }


def _product_flops(a, inputs, outputs):
    x = _row_shape(a, inputs[0])
    return 2 * prod(outputs[0]) * x[-2 if a.transpose_a else -1]


class LinalgGemm2(Matrix):
    """Product of matrices, ``out = alpha * op(A) @ op(B)``, where op transposes if asked to.

    A: (..., M, K);  B: (..., K, N)  ->  out: (..., M, N). The rows are along `axis`, the columns along the
    last.
    """

    op_name = "_linalg_gemm2"
    aliases = ("linalg_gemm2",)
    inputs = ("A", "B")
    Attrs = Gemm2Attrs

    @staticmethod
    def infer_shape(a, A, B):
        return (A, B), (_product_shape(a, A, B),)

    flops = staticmethod(_product_flops)

    @staticmethod
    def forward(xp, a, A, B, *, out):
        _multiply(xp, a, A, B, out)

    @staticmethod
    def backward(xp, a, d_out, A, B, *, d_A, d_B):
        _multiply_back(xp, a, d_out, A, B, d_A, d_B)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return _product_derivative(w, a, heads["out"], ins["A"], ins["B"])


class LinalgGemm(Matrix):
    """Product of matrices and a sum, ``out = alpha * op(A) @ op(B) + beta * C``.

    A: (..., M, K);  B: (..., K, N);  C: (..., M, N)  ->  out: (..., M, N). The rows are along `axis`, the
    columns along the last.
    """

    op_name = "_linalg_gemm"
    aliases = ("linalg_gemm",)
    inputs = ("A", "B", "C")
    inferred = ("C",)
    Attrs = GemmAttrs

    @staticmethod
    def infer_shape(a, A, B, C=None):
        out = _product_shape(a, A, B)
        return (A, B, out), (out,)

    flops = staticmethod(_product_flops)

    @staticmethod
    def forward(xp, a, A, B, C, *, out):
        _multiply(xp, a, A, B, out)
        for c, into in pieces(C, out):
            xp.add(into, c * a.beta, out=into)

    @staticmethod
    def backward(xp, a, d_out, A, B, *, d_A, d_B, d_C):
        _multiply_back(xp, a, d_out, A, B, d_A, d_B)
        if d_C is not None:
            xp.multiply(d_out, a.beta, out=d_C)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        products = _product_derivative(w, a, heads["out"], ins["A"], ins["B"])
        return {**products, "C": w._mul_scalar(heads["out"], scalar=a.beta)}


class _linalg_syrk(Matrix):
    """Matrix times its transposed, ``out = alpha * A @ A.T``, with `transpose` ``alpha * A.T @ A``.

    A: (..., M, N)  ->  out: (..., M, M), with `transpose` (..., N, N).
    """

    aliases = ("linalg_syrk",)

    @record
    class Attrs:
        transpose: bool = False
        alpha: float = 1.0

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A, square=False)
        n = A[-1 if a.transpose else -2]
        return (A,), ((*A[:-2], n, n),)

    @staticmethod
    def flops(a, inputs, outputs):
        return 2 * prod(inputs[0]) * outputs[0][-1]

    @staticmethod
    def forward(xp, a, A, *, out):
        left = turned(A, a.transpose)
        xp.matmul(left, transposed(left), out=out)
        if a.alpha != 1:
            xp.multiply(out, a.alpha, out=out)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return scratch_bytes([(inputs[0], dtype)])

    @staticmethod
    def backward(xp, a, d_out, A, *, d_A, work):
        (part,) = carve(work, [(A.shape, A.dtype)])
        if a.transpose:
            xp.matmul(A, d_out, out=d_A)
            xp.matmul(A, transposed(d_out), out=part)
        else:
            xp.matmul(d_out, A, out=d_A)
            xp.matmul(transposed(d_out), A, out=part)
        xp.add(d_A, part, out=d_A)
        if a.alpha != 1:
            xp.multiply(d_A, a.alpha, out=d_A)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, x = heads["out"], ins["A"]
        if a.transpose:
            one = w._linalg_gemm2(x, d, alpha=a.alpha)
            return {"A": w._linalg_gemm(x, d, one, transpose_b=True, alpha=a.alpha)}
        one = w._linalg_gemm2(d, x, alpha=a.alpha)
        return {"A": w._linalg_gemm(d, x, one, transpose_a=True, alpha=a.alpha)}


@record
class DiagAttrs:
    offset: int = 0


def _diagonal(x, offset):
    """The diagonal `offset` of matrices x, (B, N, N) in C order, as a strided view (B, length)."""
    n = x.shape[-1]
    first = offset if offset >= 0 else -offset * n
    return x.reshape(len(x), n * n)[:, first : n * n - (offset * n if offset > 0 else 0) : n + 1]


class _linalg_extractdiag(Matrix):
    """A diagonal of square matrices; `offset` counts upwards from the main one.

    A: (..., N, N)  ->  out: (..., N - |offset|).
    """

    aliases = ("linalg_extractdiag",)
    Attrs = DiagAttrs

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A)
        length = A[-1] - abs(a.offset)
        if length < 1 and A[-1]:
            raise ShapeError(f"offset {a.offset} is outside of matrices {A}.")
        return (A,), ((*A[:-2], length),)

    @staticmethod
    def forward(xp, a, A, *, out):
        xp.copyto(batch(out, 1), _diagonal(batch(A), a.offset))

    @staticmethod
    def backward(xp, a, d_out, *, d_A):
        d_A.fill(0)
        xp.copyto(_diagonal(batch(d_A), a.offset), batch(d_out, 1))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"A": w._linalg_makediag(heads["out"], offset=a.offset)}


class _linalg_makediag(Matrix):
    """Square matrices with the given diagonal, zero elsewhere; `offset` counts upwards from the main one.

    A: (..., L)  ->  out: (..., L + |offset|, L + |offset|).
    """

    aliases = ("linalg_makediag",)
    Attrs = DiagAttrs

    @staticmethod
    def infer_shape(a, A):
        if not A:
            raise ShapeError("A must have at least one axis, got ().")
        n = A[-1] + abs(a.offset)
        return (A,), ((*A[:-1], n, n),)

    @staticmethod
    def forward(xp, a, A, *, out):
        out.fill(0)
        xp.copyto(_diagonal(batch(out), a.offset), batch(A, 1))

    @staticmethod
    def backward(xp, a, d_out, *, d_A):
        xp.copyto(batch(d_A, 1), _diagonal(batch(d_out), a.offset))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"A": w._linalg_extractdiag(heads["out"], offset=a.offset)}


@record
class TrianAttrs:
    """`lower` counts only if `offset` is 0; else its sign decides: positive is above the main diagonal."""

    offset: int = 0
    lower: bool = True


def _move_triangle(a, matrices, vectors, extract):
    """Copy between (B, N, N) and (B, length): lower triangles go row by row, upper ones column by column."""
    offset = a.offset
    if offset > 0 or (offset == 0 and not a.lower):
        matrices, offset = transposed(matrices), -offset
    begin = 0
    for i in range(-offset, matrices.shape[-1]):
        length = i + offset + 1
        part = vectors[:, begin : begin + length]
        begin += length
        if extract:
            part[...] = matrices[:, i, :length]
        else:
            matrices[:, i, :length] = part


class _linalg_extracttrian(Matrix):
    """A triangle of square matrices as a vector: a lower one row by row, an upper one column by column.

    A: (..., N, N)  ->  out: (..., K * (K + 1) / 2) with K = N - |offset|. At `offset` 0 the lower triangle,
    or with ``lower=False`` the upper one; a positive `offset` takes what is on and above that diagonal, a
    negative one what is on and below it.
    """

    aliases = ("linalg_extracttrian",)
    Attrs = TrianAttrs

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A)
        k = A[-1] - abs(a.offset)
        if k < 1 and A[-1]:
            raise ShapeError(f"offset {a.offset} is outside of matrices {A}.")
        return (A,), ((*A[:-2], k * (k + 1) // 2),)

    @staticmethod
    def forward(xp, a, A, *, out):
        _move_triangle(a, batch(A), batch(out, 1), True)

    @staticmethod
    def backward(xp, a, d_out, *, d_A):
        d_A.fill(0)
        _move_triangle(a, batch(d_A), batch(d_out, 1), False)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"A": w._linalg_maketrian(heads["out"], offset=a.offset, lower=a.lower)}


class _linalg_maketrian(Matrix):
    """Square matrices with the given triangle, zero elsewhere: the inverse of `extracttrian`.

    A: (..., K * (K + 1) / 2)  ->  out: (..., N, N) with N = K + |offset|.
    """

    aliases = ("linalg_maketrian",)
    Attrs = TrianAttrs

    @staticmethod
    def infer_shape(a, A):
        length = A[-1] if A else 0
        k = (isqrt(8 * length + 1) - 1) // 2
        if not A or k * (k + 1) // 2 != length:
            raise ShapeError(f"A must be (..., K * (K + 1) / 2) for a whole K, got {A}.")
        n = k + abs(a.offset)
        return (A,), ((*A[:-1], n, n),)

    @staticmethod
    def forward(xp, a, A, *, out):
        out.fill(0)
        _move_triangle(a, batch(out), batch(A, 1), False)

    @staticmethod
    def backward(xp, a, d_out, *, d_A):
        _move_triangle(a, batch(d_out), batch(d_A, 1), True)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"A": w._linalg_extracttrian(heads["out"], offset=a.offset, lower=a.lower)}
