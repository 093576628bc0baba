"""Factorizations of matrices, inverses, determinants and systems of equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building import broadcast_shapes, GraphValue, NotSupportedError
from ..node import TorchNode


def _transposed(x: GraphValue) -> GraphValue:
    return x.builder.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _matrix(n: TorchNode) -> GraphValue:
    """The matrices, which the schemas call by several names."""
    return n["A" if n.plain("A") is not None else "self"]


def inverse(n: TorchNode) -> GraphValue:
    return n.builder.op("linalg_inverse", _matrix(n))


def inverse_and_status(n: TorchNode) -> tuple[Any, ...]:
    n.ignore("check_errors")  # a singular matrix is an error here in any case
    return inverse(n), None


def solution(n: TorchNode) -> GraphValue:
    """inverse(A) B, or B inverse(A); a vector for each matrix is a matrix of one column."""
    b, matrix, right = n.builder, n["A"], n["B"]
    vectors = right.rank == 1 or (right.rank == matrix.rank - 1 and right.shape == matrix.shape[:-1])
    if vectors:
        right = b.reshape(right, (*right.shape, 1))
    turned = b.op("linalg_inverse", matrix)
    out = b.matmul(turned, right) if n.plain("left", True) else b.matmul(right, turned)
    return b.reshape(out, out.shape[:-1]) if vectors else out


def solution_and_status(n: TorchNode) -> tuple[Any, ...]:
    n.ignore("check_errors")
    return solution(n), None, None, None


def determinant(n: TorchNode) -> tuple[Any, ...]:
    b, matrix = n.builder, _matrix(n)
    return b.reshape(b.op("linalg_det", matrix), matrix.shape[:-2]), None, None


def log_determinant(n: TorchNode) -> tuple[Any, ...]:
    b, matrix = n.builder, _matrix(n)
    sign, size = b.ops("linalg_slogdet", matrix)
    return b.reshape(sign, matrix.shape[:-2]), b.reshape(size, matrix.shape[:-2]), None, None


def cholesky(n: TorchNode) -> GraphValue:
    factor = n.builder.op("linalg_potrf", n["self"])
    return _transposed(factor) if n.plain("upper", False) else factor


def cholesky_and_status(n: TorchNode) -> tuple[Any, ...]:
    n.ignore("check_errors")  # a matrix that is not positive definite is an error here in any case
    return cholesky(n), None


def _solved(matrix: GraphValue, right: GraphValue, **how: bool) -> GraphValue:
    """The solution of triangular systems, whose batches broadcast."""
    b = right.builder
    batch = broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    sides = (b.expand(v, (*batch, *v.shape[-2:])) for v in (matrix, right))
    return b.op("linalg_trsm", *sides, **how)


def triangular_solution(n: TorchNode) -> Any:
    """linalg_solve_triangular, and triangular_solve, which gives the matrix as a second result."""
    old = n.plain("A") is not None and n.plain("self") is not None
    matrix, right = n["A" if old else "self"], n["self" if old else "B"]
    if n.plain("unitriangular", False):
        raise NotSupportedError("triangular matrices whose diagonal counts as ones")
    out = _solved(
        matrix,
        right,
        lower=not n.plain("upper", True),
        rightside=not n.plain("left", True),
        transpose=bool(n.plain("transpose", False)),
    )
    return (out, None) if old else out


def cholesky_solution(n: TorchNode) -> GraphValue:
    """The solution of L L' x = b, or of U' U x = b."""
    right, factor, upper = n["self"], n["input2"], bool(n.plain("upper", False))
    half = _solved(factor, right, lower=not upper, transpose=upper)
    return _solved(factor, half, lower=not upper, transpose=not upper)


def cholesky_inverse(n: TorchNode) -> GraphValue:
    """The inverse of the matrix whose Cholesky factor this is."""
    factor, upper = n["self"], n.plain("upper", False)
    return n.builder.op("linalg_potri", _transposed(factor) if upper else factor)


def orthogonal(n: TorchNode) -> tuple[GraphValue, GraphValue]:
    """linalg_qr of matrices with no more columns than rows: the transposes of their LQ factors."""
    b, matrix = n.builder, n["A"]
    if matrix.shape[-2] < matrix.shape[-1] or n.plain("mode", "reduced") != "reduced":
        raise NotSupportedError("a QR factorization of more columns than rows, or with another mode")
    basis, factor = b.ops("linalg_gelqf", _transposed(matrix))
    return _transposed(basis), _transposed(factor)


def eigenvalues(n: TorchNode) -> tuple[GraphValue, GraphValue]:
    """linalg_eigh: an eigenvector's sign is ours, since PyTorch promises none."""
    n.ignore("UPLO", "compute_v")  # both triangles of a symmetric matrix say the same
    vectors, values = n.builder.ops("linalg_syevd", n["A"])
    return values, _transposed(vectors)


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "_linalg_det": determinant,
    "_linalg_eigh": eigenvalues,
    "_linalg_slogdet": log_determinant,
    "_linalg_solve_ex": solution_and_status,
    "cholesky": cholesky,
    "cholesky_inverse": cholesky_inverse,
    "cholesky_solve": cholesky_solution,
    "inverse": inverse,
    "linalg_cholesky": cholesky,
    "linalg_cholesky_ex": cholesky_and_status,
    "linalg_inv": inverse,
    "linalg_inv_ex": inverse_and_status,
    "linalg_qr": orthogonal,
    "linalg_solve": solution,
    "linalg_solve_triangular": triangular_solution,
    "triangular_solve": triangular_solution,
}
