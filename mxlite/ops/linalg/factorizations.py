"""Triangular systems, factorizations, inverses and determinants of matrices: `mx.nd.linalg.potrf` and others.

Each works on (..., N, N), one matrix for every index of the axes before, small ones many at a time. The
gradients are those of M. Giles, 2008, "An extended collection of matrix derivative results for forward and
reverse mode algorithmic differentiation", and M. Seeger et al., 2017, "Auto-differentiating linear algebra".

numpy's LAPACK functions return new arrays: a matrix larger than some 64 x 64 takes temporaries of its own
size that the memory plan does not see. Kernels in `backends` that write to an `out` would avoid that.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...core.errors import MXLiteError, ShapeError
from ...core.record import record
from ..declared import Declared
from .matrices import batch, chunks, Matrix, require_matrix, transposed, turned


class _Square(Matrix):
    """Square matrices to square matrices."""

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A)
        return (A,), (A,)

    @staticmethod
    def flops(a, inputs, outputs):
        return 2 * prod(inputs[0]) * inputs[0][-1]


def _lapack(function, what, *matrices):
    """The result of a function of numpy.linalg; its failure is an error of ours."""
    try:
        return function(*matrices)
    except np.linalg.LinAlgError:
        raise MXLiteError(what) from None


def _inverse(x):
    return _lapack(
        np.linalg.inv, f"a matrix of {x.shape[-1]} x {x.shape[-1]} has no inverse: it is singular.", x
    )


def _triangle(x, lower):
    return np.tril(x) if lower else np.triu(x)


def _solve(triangle, right, lower):
    """`x` with ``triangle @ x = right``, by substitution, row by row; the other triangle is not read."""
    n = triangle.shape[-1]
    if not np.all(np.einsum("bii->bi", triangle)):
        raise MXLiteError(f"a triangular matrix of {n} x {n} is singular: it has a 0 on its diagonal.")
    x = right.copy()
    for i in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, n)
        row = x[:, i : i + 1]
        row -= triangle[:, i : i + 1, done] @ x[:, done]
        row /= triangle[:, i : i + 1, i : i + 1]
    return x


def _solve_op(triangle, right, lower, transpose):
    """`x` with ``op(triangle) @ x = right``."""
    return _solve(turned(triangle, transpose), right, lower != transpose)


def _copy_lower(x):
    """The lower triangle, and above the diagonal its mirror image."""
    low = np.tril(x)
    return low + transposed(np.tril(x, -1))


@record
class FactorAttrs:
    lower: bool = True


class _linalg_potrf(_Square):
    """Cholesky factor of positive definite matrices: lower triangular ``out`` with ``A = out @ out.T``.

    A: (..., N, N), of which the symmetric part is taken  ->  out: (..., N, N), 0 above the diagonal; with
    `lower` off its transpose, ``A = out.T @ out``. It is an error if a matrix is not positive definite. The
    gradient is symmetric and reads `out` only.
    """

    aliases = ("linalg_potrf",)
    Attrs = FactorAttrs

    @staticmethod
    def forward(xp, a, A, *, out):
        for x, into in chunks(batch(A), batch(out)):
            low = _lapack(xp.linalg.cholesky, "a matrix is not positive definite.", (x + transposed(x)) * 0.5)
            into[...] = _turned(low, a)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_A):
        for d, low, into in chunks(batch(d_out), batch(out), batch(d_A)):
            d, low = _turned(d, a), _turned(low, a)
            inner = _copy_lower(transposed(low) @ d)
            half = _solve_op(low, inner, True, True)
            into[...] = transposed(_solve_op(low, transposed(half), True, True)) * 0.5


class _linalg_potri(_Square):
    """Inverse of a symmetric matrix from its Cholesky factor, ``out = inverse(A @ A.T)``.

    A: (..., N, N), of which the lower triangle is taken  ->  out: (..., N, N). The gradient is lower
    triangular. With `lower` off A is the factor's transpose, and upper triangular.
    """

    aliases = ("linalg_potri",)
    Attrs = FactorAttrs

    @staticmethod
    def forward(xp, a, A, *, out):
        for x, into in chunks(batch(A), batch(out)):
            x = _turned(x, a)
            eye = xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype), x.shape)
            half = _solve(x, eye, True)
            into[...] = transposed(half) @ half

    @staticmethod
    def backward(xp, a, d_out, A, out, *, d_A):
        for d, x, y, into in chunks(batch(d_out), batch(A), batch(out), batch(d_A)):
            x, both = _turned(x, a), y @ (d + transposed(d))
            # both @ inverse(A).T is the transposed solution of A @ s = both.T
            into[...] = _turned(-np.tril(transposed(_solve(x, transposed(both), True))), a)


def _turned(x, a):
    """The lower triangular factor `x`, or its transpose, as `a` asks for."""
    return x if a.lower else transposed(x)


@record
class TriangularAttrs:
    transpose: bool = False
    rightside: bool = False
    lower: bool = True
    alpha: float = 1.0


class _Triangular(Matrix):
    """Base: a triangular matrix and another."""

    inputs = ("A", "B")
    Attrs = TriangularAttrs

    @staticmethod
    def infer_shape(a, A, B):
        require_matrix(A)
        require_matrix(B, "B", square=False)
        if A[:-2] != B[:-2] or A[-1] != B[-1 if a.rightside else -2]:
            raise ShapeError(
                f"A {A} and B {B} do not fit: batch axes must be equal, and B must have {A[-1]} "
                f"{'columns' if a.rightside else 'rows'} (rightside={a.rightside})."
            )
        return (A, B), (B,)

    @staticmethod
    def flops(a, inputs, outputs):
        return prod(inputs[1]) * inputs[0][-1]


class _linalg_trmm(_Triangular):
    """Product with a triangular matrix, ``out = alpha * op(A) @ B``, with `rightside` ``alpha * B @ op(A)``.

    A: (..., N, N), of which the lower triangle is taken, with ``lower=False`` the upper one;  B: (..., N, M),
    with `rightside` (..., M, N)  ->  out: as `B`. `transpose` transposes A.
    """

    aliases = ("linalg_trmm",)

    @staticmethod
    def forward(xp, a, A, B, *, out):
        for x, y, into in chunks(batch(A), batch(B), batch(out)):
            side = turned(_triangle(x, a.lower), a.transpose)
            xp.matmul(*((y, side) if a.rightside else (side, y)), out=into)
            into *= a.alpha

    @staticmethod
    def backward(xp, a, d_out, A, B, *, d_A, d_B):
        arrays = [batch(x) for x in (A, B, d_out, d_A, d_B)]
        for x, y, d, into_a, into_b in chunks(*arrays):
            if into_b is not None:
                side = turned(_triangle(x, a.lower), not a.transpose)
                xp.matmul(*((d, side) if a.rightside else (side, d)), out=into_b)
                into_b *= a.alpha
            if into_a is not None:
                slope = transposed(y) @ d if a.rightside else d @ transposed(y)
                into_a[...] = _triangle(turned(slope, a.transpose), a.lower) * a.alpha

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d, y = heads["out"], ins["B"]
        back = w._linalg_trmm(
            ins["A"], d, transpose=not a.transpose, rightside=a.rightside, lower=a.lower, alpha=a.alpha
        )
        left, right = (y, d) if a.rightside else (d, y)
        if a.transpose:
            left, right = right, left
        # d @ y.T, or y.T @ d, and the transpose of either
        first = a.rightside
        slope = w._linalg_gemm2(left, right, transpose_a=first, transpose_b=not first, alpha=a.alpha)
        return {"A": _keep_triangle(w, slope, a.lower), "B": back}


class _linalg_trsm(_Triangular):
    """Solution of a triangular system, ``op(A) @ out = alpha * B``; `rightside`: ``out @ op(A) = alpha * B``.

    A: (..., N, N), of which the lower triangle is taken, with ``lower=False`` the upper one;  B: (..., N, M),
    with `rightside` (..., M, N)  ->  out: as `B`. `transpose` transposes A. A 0 on the diagonal is an error.
    """

    aliases = ("linalg_trsm",)

    @staticmethod
    def forward(xp, a, A, B, *, out):
        for x, y, into in chunks(batch(A), batch(B), batch(out)):
            into[...] = _system(a, x, y, a.transpose)
            into *= a.alpha

    @staticmethod
    def backward(xp, a, d_out, A, out, *, d_A, d_B):
        arrays = [batch(x) for x in (A, out, d_out, d_A, d_B)]
        for x, y, d, into_a, into_b in chunks(*arrays):
            back = _system(a, x, d, not a.transpose)
            if into_a is not None:
                slope = transposed(y) @ back if a.rightside else back @ transposed(y)
                into_a[...] = -_triangle(turned(slope, a.transpose), a.lower)
            if into_b is not None:
                xp.multiply(back, a.alpha, out=into_b)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        how = {"transpose": not a.transpose, "rightside": a.rightside, "lower": a.lower}
        back, y = w._linalg_trsm(ins["A"], heads["out"], **how), outs["out"]
        left, right = (y, back) if a.rightside else (back, y)
        if a.transpose:
            left, right = right, left
        first = a.rightside
        slope = w._linalg_gemm2(left, right, transpose_a=first, transpose_b=not first, alpha=-1)
        return {"A": _keep_triangle(w, slope, a.lower), "B": w._mul_scalar(back, scalar=a.alpha)}


def _system(a, triangle, right, transpose):
    if a.rightside:
        return transposed(_solve_op(triangle, transposed(right), a.lower, not transpose))
    return _solve_op(triangle, right, a.lower, transpose)


def _keep_triangle(w, matrix, lower):
    return w._linalg_maketrian(w._linalg_extracttrian(matrix, lower=lower), lower=lower)


class _Scalars(Matrix):
    """One number for each square matrix; (1,) for a single matrix."""

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A)
        return (A,), (A[:-2] or (1,),)

    @staticmethod
    def flops(a, inputs, outputs):
        return prod(inputs[0]) * inputs[0][-1]


class _linalg_sumlogdiag(Declared, _Scalars):
    """Sum of the logarithms of the diagonal: half the log determinant of A @ A.T, for a Cholesky factor A.

    A: (..., N, N)  ->  out: (...), (1,) for a single matrix. The gradient, ``d_out / A``, is on the diagonal.
    """

    aliases = ("linalg_sumlogdiag",)
    backward_reads = ("d_out", "A")
    gradients = ("A",)

    @staticmethod
    def compute(t, a, A):
        count, n = prod(A.shape[:-2]), A.shape[-1]
        rows = t.view(A, (count, n, n))
        diagonal = t.pick(rows, t.index(t.broadcast(0.0, (n, 1)), 0), 2)
        return {"out": t.sum(t.log(diagonal), (1,))}


class _linalg_det(_Scalars):
    """Determinant.

    A: (..., N, N)  ->  out: (...), (1,) for a single matrix. Gradient ``d_out * out * inverse(A).T``; of a
    singular matrix it is 0, as in MXNet.
    """

    aliases = ("linalg_det",)

    @staticmethod
    def forward(xp, a, A, *, out):
        for x, into in chunks(batch(A), out.reshape(-1)):
            into[...] = xp.linalg.det(x)

    @staticmethod
    def backward(xp, a, d_out, A, out, *, d_A):
        for x, d, y, into in chunks(batch(A), d_out.reshape(-1), out.reshape(-1), batch(d_A)):
            _inverse_transposed(xp, x, y != 0, into)
            into *= (d * y)[:, None, None]


class _linalg_slogdet(_Scalars):
    """Sign and logarithm of the size of the determinant: 0 and -inf for a singular matrix.

    A: (..., N, N)  ->  sign, logabsdet: (...), (1,) for a single matrix. Gradient
    ``d_logabsdet * inverse(A).T``; of a singular matrix it is 0, as in MXNet. The sign has none.
    """

    aliases = ("linalg_slogdet",)
    outputs = ("sign", "logabsdet")

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A)
        return (A,), (A[:-2] or (1,),) * 2

    @staticmethod
    def forward(xp, a, A, *, sign, logabsdet):
        flat = [None if x is None else x.reshape(-1) for x in (sign, logabsdet)]
        for x, one, two in chunks(batch(A), *flat):
            signs, logs = xp.linalg.slogdet(x)
            if one is not None:
                one[...] = signs
            if two is not None:
                two[...] = logs

    @staticmethod
    def backward(xp, a, d_logabsdet, A, logabsdet, *, d_A):
        if d_logabsdet is None:
            d_A.fill(0)
            return
        flat = d_logabsdet.reshape(-1), logabsdet.reshape(-1)
        for x, d, y, into in chunks(batch(A), *flat, batch(d_A)):
            _inverse_transposed(xp, x, y != -xp.inf, into)
            into *= d[:, None, None]


def _inverse_transposed(xp, x, regular, into):
    """The transposed inverses of the `regular` ones, 0 for the others."""
    into.fill(0)
    if regular.any():
        into[regular] = transposed(_inverse(x[regular]))


class _linalg_inverse(_Square):
    """Inverse of square matrices.

    A: (..., N, N)  ->  out: (..., N, N). A singular matrix is an error. Gradient ``-out.T @ d_out @ out.T``:
    `A` is not read.
    """

    aliases = ("linalg_inverse",)

    @staticmethod
    def forward(xp, a, A, *, out):
        for x, into in chunks(batch(A), batch(out)):
            into[...] = _inverse(x)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_A):
        for d, y, into in chunks(batch(d_out), batch(out), batch(d_A)):
            xp.matmul(transposed(y) @ d, transposed(y), out=into)
            xp.negative(into, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        y = outs["out"]
        half = w._linalg_gemm2(y, heads["out"], transpose_a=True, alpha=-1)
        return {"A": w._linalg_gemm2(half, y, transpose_b=True)}


class _linalg_gelqf(Matrix):
    """LQ factorization, ``A = L @ Q``: the rows of Q are orthonormal, L is lower triangular.

    A: (..., M, N) with M <= N, of full rank  ->  Q: (..., M, N), L: (..., M, M). The signs are LAPACK's.
    Gradient ``L.T^-1 @ (d_Q + mirror(L.T @ d_L - d_Q @ Q.T) @ Q)``, where mirror copies the lower triangle
    up.
    """

    aliases = ("linalg_gelqf",)
    outputs = ("Q", "L")

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A, square=False)
        if A[-2] > A[-1]:
            raise ShapeError(f"A must be (..., M, N) with M <= N, got {A}.")
        return (A,), (A, (*A[:-1], A[-2]))

    @staticmethod
    def flops(a, inputs, outputs):
        return 4 * prod(inputs[0]) * inputs[0][-2]

    @staticmethod
    def forward(xp, a, A, *, Q, L):
        for x, q, low in chunks(batch(A), batch(Q), batch(L)):
            basis, upper = xp.linalg.qr(transposed(x))
            if q is not None:
                q[...] = transposed(basis)
            if low is not None:
                low[...] = transposed(upper)

    @staticmethod
    def backward(xp, a, d_Q, d_L, Q, L, *, d_A):
        arrays = [batch(x) for x in (Q, L, d_Q, d_L, d_A)]
        for q, low, d_q, d_low, into in chunks(*arrays):
            inner = xp.zeros_like(low) if d_low is None else transposed(low) @ d_low
            if d_q is not None:
                inner -= d_q @ transposed(q)
            total = _copy_lower(inner) @ q
            if d_q is not None:
                total += d_q
            into[...] = _solve_op(low, total, True, True)


class _linalg_syevd(Matrix):
    """Eigenvectors and eigenvalues of symmetric matrices, ``U @ A = diag(L) @ U``.

    A: (..., N, N), of which the symmetric part is taken  ->  U: (..., N, N), orthonormal rows; L: (..., N),
    ascending. The largest element of each row of U is positive. Gradient
    ``U.T @ (diag(d_L) + sym(F * (U @ d_U.T))) @ U`` with ``F[i, j] = 1 / (L[j] - L[i])`` off the diagonal:
    not defined where two eigenvalues are equal (MXNet says the same); they count as infinitely far apart
    there.
    """

    aliases = ("linalg_syevd",)
    outputs = ("U", "L")

    @staticmethod
    def infer_shape(a, A):
        require_matrix(A)
        return (A,), (A, A[:-1])

    @staticmethod
    def flops(a, inputs, outputs):
        return 9 * prod(inputs[0]) * inputs[0][-1]

    @staticmethod
    def forward(xp, a, A, *, U, L):
        for x, u, values in chunks(batch(A), batch(U), batch(L, 1)):
            what = "the eigenvalues of a matrix do not converge."
            found, vectors = _lapack(xp.linalg.eigh, what, (x + transposed(x)) * 0.5)
            if values is not None:
                values[...] = found
            if u is not None and x.size:
                rows = transposed(vectors)
                place = xp.absolute(rows).argmax(axis=-1)[..., None]
                u[...] = rows * xp.where(xp.take_along_axis(rows, place, axis=-1) < 0, -1, 1)

    @staticmethod
    def backward(xp, a, d_U, d_L, U, L, *, d_A):
        arrays = batch(U), batch(L, 1), batch(d_U), batch(d_L, 1), batch(d_A)
        for u, values, d_u, d_values, into in chunks(*arrays):
            inner = xp.zeros_like(u)
            if d_u is not None:
                gap = values[:, None, :] - values[:, :, None]
                inner = u @ transposed(d_u)
                inner = xp.where(gap == 0, 0, inner / xp.where(gap == 0, 1, gap))
                inner = (inner + transposed(inner)) * 0.5
            if d_values is not None:
                xp.einsum("bii->bi", inner)[...] += d_values
            xp.matmul(transposed(u) @ inner, u, out=into)
