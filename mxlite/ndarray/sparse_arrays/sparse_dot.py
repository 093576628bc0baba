"""Products of csr matrices with dense ones, composed of the operators of `ops/linalg/sparse_dot.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import cpu
from ..calls.invoke import invoke
from ..calls.plan import call_of
from ..ndarray import NDArray
from .sparse_form import Array, CSRForm, RowSparseForm

NARROW = 32  # the most columns for which sums are added in place; with more, elements are sorted first


def times_dense(a: CSRForm, b: Array) -> Array:
    """(M, K) ``a @ b``."""
    return _sums(a.data, a.indices, a.indptr, b)


def transposed_times_dense(a: CSRForm, b: Array) -> RowSparseForm:
    """(N, K) ``a.T @ b``: the rows for columns in which `a` stores something."""
    columns = a.shape[1]
    if not a.data.size:
        empty = np.zeros((0, b.shape[1]), np.result_type(a.dtype, b.dtype))
        return RowSparseForm((columns, b.shape[1]), empty, a.indices)
    if b.shape[1] <= NARROW:
        kind = np.result_type(a.dtype, b.dtype)
        data, b = a.data.astype(kind, copy=False), np.ascontiguousarray(b, kind)
        given = (data, a.indices, a.indptr, b)
        sums, touched = _called("_sums_by_columns", {"columns": columns}, given)
        found = np.flatnonzero(touched)
        return RowSparseForm((columns, b.shape[1]), sums[found], found)
    values, rows, starts = _called("_by_columns", {"columns": columns}, (a.data, a.indices, a.indptr))
    found = np.flatnonzero(starts[1:] > starts[:-1])
    ends = np.append(starts[found], starts[-1:])
    return RowSparseForm((columns, b.shape[1]), _sums(values, rows, ends, b), found)


def _sums(data: Array, lines: Array, ends: Array, b: Array) -> Array:
    kind = np.result_type(data, b)
    shape = len(ends) - 1, b.shape[1]
    if not data.size or 0 in shape:
        return np.zeros(shape, kind)
    data, b = data.astype(kind, copy=False), np.ascontiguousarray(b, kind)
    (sums,) = _called("_sums_of_rows", {}, (data, lines, ends, b))
    return sums


def _called(name: str, attrs: dict[str, Any], arrays: Sequence[Array]) -> list[Array]:
    """The results of an operator on arrays that nothing else writes meanwhile."""
    results = invoke(call_of(name, attrs), [NDArray.adopt(x, cpu()) for x in arrays])
    return [x.look() for x in (results if isinstance(results, (list, tuple)) else [results])]
