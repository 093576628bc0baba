"""mx.nd.sparse: sparse arrays from their stored elements, or from dense arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import as_dtype, Context, ShapeError
from ...core.errors import ArgumentError, RangeError
from ...core.wanted import found, wanted
from ...ops.linalg.sparse_storage import STYPES
from ..memory.storage import check_shape
from ..ndarray import NDArray
from ..operators.creation import array as dense_of
from .sparse_array import BaseSparseNDArray, CSRNDArray, form_of_dense, RowSparseNDArray, zeros_of
from .sparse_form import Array, CSRForm, index_type, RowSparseForm, starts


def csr_matrix(arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None) -> CSRNDArray:
    """A matrix stored by rows.

    arg1: a shape (M, N), of zeros;  (data, indices, indptr);  (data, (row, column)) in any order, with
    repeated positions summed;  a csr array, a scipy.sparse matrix;  or something dense, whose elements other
    than 0 are stored. `shape` None: the smallest. `dtype` None: that of `data`, float32 for lists.
    """
    if isinstance(arg1, tuple) and len(arg1) == 3:
        form = _csr(_values(arg1[0], dtype), _places(arg1[1]), _places(arg1[2]), shape)
    elif isinstance(arg1, tuple) and len(arg1) == 2 and isinstance(arg1[1], (tuple, list)):
        form = _from_pairs(_values(arg1[0], dtype), _places(arg1[1][0]), _places(arg1[1][1]), shape)
    elif isinstance(arg1, tuple) and len(arg1) == 2 and _is_shape(arg1):
        _require_shape("csr_matrix", shape, arg1)
        result = zeros_of("csr", check_shape(arg1), ctx, dtype)
        assert isinstance(result, CSRNDArray)
        return result
    else:
        return _converted("csr", arg1, shape, ctx, dtype)  # type: ignore[return-value]
    return CSRNDArray.of(form, ctx)


def row_sparse_array(
    arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None
) -> RowSparseNDArray:
    """An array of which some rows are stored.

    arg1: a shape, of zeros;  (data, indices), the rows and their numbers in any order;  a row_sparse array;
    or something dense, of which those rows are stored that are not 0. `shape` and `dtype` as of `csr_matrix`.
    """
    if isinstance(arg1, tuple) and _is_shape(arg1):
        _require_shape("row_sparse_array", shape, arg1)
        result = zeros_of("row_sparse", check_shape(arg1), ctx, dtype)
        assert isinstance(result, RowSparseNDArray)
        return result
    if not isinstance(arg1, tuple):
        return _converted("row_sparse", arg1, shape, ctx, dtype)  # type: ignore[return-value]
    if len(arg1) != 2:
        raise ShapeError(f"row_sparse_array takes (data, indices), got {len(arg1)} parts.")
    data, rows = _values(arg1[0], dtype), _places(arg1[1])
    if data.ndim < 1:
        raise ShapeError(f"row_sparse_array takes a list of rows, got data of shape {data.shape}.")
    if shape is None:
        shape = (int(rows.max(initial=-1)) + 1, *data.shape[1:])
    order = np.argsort(rows, kind="stable") if rows.ndim == 1 and len(rows) == len(data) else slice(None)
    return RowSparseNDArray.of(RowSparseForm(check_shape(shape), data[order], rows[order]), ctx)


def zeros(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """Zeros of the storage type `stype`, none of which is stored."""
    if stype == "default":
        from ..operators.creation import zeros as dense_zeros

        return dense_zeros(shape, ctx, dtype, **kwargs)
    if stype not in STYPES:
        raise RangeError(f"sparse.zeros: stype must be one of {', '.join(STYPES)}, got {stype!r}.")
    wanted_only("zeros", kwargs)
    return zeros_of(stype, check_shape(shape), ctx, dtype)


def empty(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """`zeros` of the storage type."""
    return zeros(stype, shape, ctx, dtype)


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> BaseSparseNDArray:
    """A copy of a sparse array, or of a scipy.sparse matrix as a csr one."""
    if isinstance(source_array, BaseSparseNDArray):
        result = source_array.copyto(ctx) if ctx is not None else source_array.copy()
        return result if dtype is None else result.astype(dtype, copy=False)
    if not hasattr(source_array, "tocsr"):
        raise ArgumentError(
            f"sparse.array copies a sparse array of mxlite or scipy, got {found(source_array)}; "
            f"mx.nd.array(x).tostype('csr') stores what is not 0."
        )
    return csr_matrix(source_array, ctx=ctx, dtype=dtype)


def wanted_only(name: str, left: dict[str, Any]) -> None:
    if left:
        raise ArgumentError(f"sparse.{name} takes no {next(iter(left))!r}.")


def _is_shape(given: tuple[Any, ...]) -> bool:
    return all(isinstance(d, (int, np.integer)) for d in given)


def _require_shape(name: str, shape: Any, given: Any) -> None:
    if shape is not None and tuple(shape) != tuple(given):
        raise ShapeError(f"{name}: shape {tuple(shape)} is not {tuple(given)}.")


def _values(given: Any, dtype: Any) -> Array:
    """A new numpy array with the given values."""
    if isinstance(given, NDArray):
        return np.array(given.asnumpy(), None if dtype is None else as_dtype(dtype))
    if dtype is None:
        dtype = given.dtype if isinstance(given, np.ndarray) else np.float32
    return np.array(given, as_dtype(dtype))


def _places(given: Any) -> Array:
    return np.array(given.asnumpy() if isinstance(given, NDArray) else given).astype(index_type)


def _csr(data: Array, indices: Array, indptr: Array, shape: Any) -> CSRForm:
    if shape is None and not indices.size:
        raise ShapeError(
            f"csr_matrix: no element tells how many columns the {len(indptr) - 1} rows have; give shape."
        )
    if shape is None:
        shape = (len(indptr) - 1, int(indices.max()) + 1)
    shape = check_shape(shape)
    if len(shape) != 2:
        raise ShapeError(f"A csr array has 2 axes, got the shape {shape}.")
    return CSRForm(shape, data, indices, indptr)


def _from_pairs(data: Array, rows: Array, columns: Array, shape: Any) -> CSRForm:
    if shape is None:
        shape = (int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1)
    shape = check_shape(shape)
    if rows.shape != data.shape or columns.shape != data.shape or data.ndim != 1:
        raise ShapeError(
            f"csr_matrix: {data.shape} elements need as many rows and columns, got "
            f"{rows.shape} and {columns.shape}."
        )
    keys = rows * max(1, shape[1]) + columns
    if (keys[1:] > keys[:-1]).all():
        return CSRForm(shape, data, columns, starts(rows, shape[0]))
    every, inverse = np.unique(keys, return_inverse=True)
    summed = np.zeros(len(every), data.dtype)
    np.add.at(summed, inverse, data)
    rows, columns = np.divmod(every, max(1, shape[1]))
    return CSRForm(shape, summed, columns, starts(rows, shape[0]))


def _converted(stype: str, given: Any, shape: Any, ctx: Context | None, dtype: Any) -> BaseSparseNDArray:
    """A sparse array with the values of an array, sparse or dense."""
    result: BaseSparseNDArray
    if hasattr(given, "tocsr") and stype == "csr":
        matrix = given.tocsr()  # its rows may have their columns in any order, and one twice
        kind = as_dtype(matrix.dtype if dtype is None else dtype)
        rows = np.repeat(np.arange(matrix.shape[0], dtype=index_type), np.diff(matrix.indptr))
        places = rows, matrix.indices.astype(index_type)
        result = CSRNDArray.of(_from_pairs(np.array(matrix.data, kind), *places, tuple(matrix.shape)), ctx)
    elif isinstance(given, BaseSparseNDArray) and given.stype == stype:
        result = given.copy() if dtype is None else given.astype(dtype)
        if ctx is not None:
            result = result.copyto(ctx)
    else:
        if dtype is None and isinstance(given, np.ndarray):
            dtype = given.dtype
        plain = given.plain() if isinstance(given, NDArray) else dense_of(given, dtype=dtype)
        wanted(f"sparse: {stype}", plain, "an array", NDArray)
        kind = as_dtype(plain.dtype if dtype is None else dtype)
        form = form_of_dense(stype, plain.asnumpy().astype(kind, copy=False))
        result = (CSRNDArray if stype == "csr" else RowSparseNDArray).of(form, ctx)
    if shape is not None and tuple(shape) != result.shape:
        raise ShapeError(f"The array is {result.shape}, not {tuple(shape)}.")
    return result
