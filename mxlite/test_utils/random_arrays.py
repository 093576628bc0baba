"""Random shapes and arrays, from numpy's global generator, and small helpers for expected values."""
# ruff: noqa: NPY002  # MXNet's generator, so that its seed counts

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import OpAttributeError
from ..core.errors import ArgumentError, RangeError
from ..ndarray import array, NDArray, sparse
from .tolerances import default_dtype


def random_arrays(*shapes: tuple[int, ...]) -> Any:
    """A float32 array of normal numbers for each shape; alone if there is one."""
    arrays = [np.asarray(np.random.randn(*s), dtype=default_dtype()) for s in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: tuple[int, ...], **kwargs: Any) -> list[np.ndarray]:
    """An array for each shape, uniform in [low, high). low=0, high=1, dtype=float32."""
    low, high = kwargs.pop("low", 0.0), kwargs.pop("high", 1.0)
    dtype = kwargs.pop("dtype", default_dtype())
    if kwargs:
        raise ArgumentError(f"random_uniform_arrays has no parameter {next(iter(kwargs))!r}.")
    return [np.asarray(np.random.uniform(low, high, size=s), dtype=dtype) for s in shapes]


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """`k` items in any order."""
    if not 0 <= k <= len(population):
        raise RangeError(f"{k} items cannot be drawn from {len(population)}.")
    items = list(population)
    np.random.shuffle(items)
    return items[:k]


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Two lengths from 1 (0 if they may be) to `dim0` and `dim1`."""
    return _shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> tuple[int, ...]:
    """Three lengths from 1 (0 if they may be) to `dim0`, `dim1` and `dim2`."""
    return _shape((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """`num_dim` lengths from 1 (0 if they may be) to `dim`."""
    return _shape((dim,) * num_dim, allow_zero_size)


def _shape(most: Sequence[int], allow_zero_size: bool) -> tuple[int, ...]:
    return tuple(int(np.random.randint(0 if allow_zero_size else 1, n + 1)) for n in most)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """x in [x_low, x_high) and y in [y_low, y_high)."""
    return int(np.random.randint(x_low, x_high)), int(np.random.randint(y_low, y_high))


def rand_ndarray(
    shape: Sequence[int],
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    modifier_func: Callable[[float], float] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Any = None,
) -> NDArray:
    """An NDArray of normal numbers, of the storage type `stype`; see `rand_sparse_ndarray` for the rest."""
    if stype == "default":
        return array(random_arrays(tuple(shape)), ctx=ctx, dtype=dtype or default_dtype())
    return rand_sparse_ndarray(
        shape, stype, density, dtype, distribution, None, None, modifier_func, shuffle_csr_indices, ctx
    )[0]


def rand_sparse_ndarray(
    shape: Sequence[int],
    stype: str,
    density: float | None = None,
    dtype: Any = None,
    distribution: str | None = None,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    modifier_func: Callable[[float], float] | None = None,
    shuffle_csr_indices: bool = False,
    ctx: Any = None,
) -> tuple[NDArray, tuple[np.ndarray, ...]]:
    """A sparse array of numbers in [0, 1), and its arrays: (data, indices), for csr (indptr, indices, data).

    `density` is the share of elements, of rows if `stype` is 'row_sparse', that are stored; a random one if
    None. A csr array stores exactly that share, at random positions, or with `distribution` 'powerlaw' one
    element in the first row, two in the next, four, ... `rsp_indices` names the rows instead. `data_init` is
    the value of all stored elements, and `modifier_func` is applied to each. `shuffle_csr_indices`: the
    columns of a row are in no order. The numbers are not those of MXNet's function. OpAttributeError for
    another `distribution`, or a density that is too small for a power law (fewer than two elements a row).
    """
    share = float(np.random.rand()) if density is None else density
    values = np.random.rand(*shape)
    if data_init is not None:
        values[...] = data_init
    values = assign_each(values, modifier_func).astype(dtype or default_dtype())
    if stype == "row_sparse":
        if distribution not in (None, "uniform"):
            raise OpAttributeError(f"rows are stored by a uniform distribution, got {distribution!r}.")
        rows = (
            np.flatnonzero(np.random.rand(shape[0]) < share)
            if rsp_indices is None
            else np.array(rsp_indices, np.int64)
        )
        array: Any = sparse.row_sparse_array((values[rows], rows), tuple(shape), ctx)
        return array, (array.data.asnumpy(), array.indices.asnumpy())
    if stype != "csr":
        raise OpAttributeError(f"stype is 'csr' or 'row_sparse', got {stype!r}.")
    rows, columns = np.nonzero(_stored_of_csr(shape, share, distribution))
    indptr = np.searchsorted(rows, np.arange(shape[0] + 1))
    if shuffle_csr_indices:
        for begin, end in itertools.pairwise(indptr):
            np.random.shuffle(columns[begin:end])
    array = sparse.csr_matrix((values[rows, columns], columns, indptr), tuple(shape), ctx)
    return array, (array.indptr.asnumpy(), array.indices.asnumpy(), array.data.asnumpy())


def _stored_of_csr(shape: Sequence[int], share: float, distribution: str | None) -> np.ndarray:
    """A mask of the elements that a csr matrix stores."""
    rows, columns = shape
    stored = np.zeros((rows, columns), bool)
    total = round(rows * columns * share)
    if distribution in (None, "uniform"):
        stored.reshape(-1)[np.random.choice(stored.size, total, replace=False)] = True
        return stored
    if distribution != "powerlaw":
        raise OpAttributeError(f"distribution is 'uniform' or 'powerlaw', got {distribution!r}.")
    if total < 2 * rows:
        raise OpAttributeError(
            f"a power law stores at least two elements a row; density {share} of {rows}x{columns} stores "
            f"{total}."
        )
    stored[:, 0] = True  # then each row in turn gets twice as many as the one before
    left, length = total - rows, 2
    for row in range(rows):
        more = min(length - 1, columns - 1, left)
        stored[row, 1 : 1 + more] = True
        left -= more
        length *= 2
    for row in reversed(range(rows)):  # the remaining elements
        free = np.flatnonzero(~stored[row])[:left]
        stored[row, free] = True
        left -= len(free)
    return stored


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """function(x) for each element; the input itself without one."""
    return np.array(the_input) if function is None else np.vectorize(function)(the_input)


def assign_each2(
    input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None
) -> np.ndarray:
    """function(x, y) for each pair of elements; the first input itself without one."""
    return np.array(input1) if function is None else np.vectorize(function)(input1, input2)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """(rows, columns): each row full of its number."""
    return array(np.repeat(np.arange(rows), columns).reshape(rows, columns), dtype=dtype)


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """0, 1, ..., size - 1."""
    return array(np.arange(size), dtype=dtype)


def np_reduce(
    dat: np.ndarray, axis: int | Sequence[int] | None, keepdims: bool, numpy_reduce_func: Callable[..., Any]
) -> np.ndarray:
    """A reduction of numpy's along one axis after the other, all of them for None."""
    axes = [axis] if isinstance(axis, int) else range(dat.ndim) if axis is None else axis
    axes = sorted(a % dat.ndim for a in axes)
    result = dat
    for a in reversed(axes):
        result = numpy_reduce_func(result, axis=a)
    if keepdims:
        result = np.reshape(result, [1 if i in axes else n for i, n in enumerate(dat.shape)])
    return np.asarray(result)


def collapse_sum_like(a: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """`a` summed down to a shape that broadcasts to its own."""
    before = a.ndim - len(shape)
    axes = [i for i in range(a.ndim) if i < before or shape[i - before] != a.shape[i]]
    return np.sum(a, axis=tuple(axes)).reshape(tuple(shape))


def create_sparse_array(
    shape: Sequence[int],
    stype: str,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    dtype: Any = None,
    modifier_func: Callable[[float], float] | None = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """A sparse array with all elements of its stored rows, or half of those of a csr matrix; see
    `rand_sparse_ndarray`.
    """
    array, _ = rand_sparse_ndarray(
        shape,
        stype,
        density=density,
        data_init=data_init,
        rsp_indices=rsp_indices,
        dtype=dtype,
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
    )
    return array


def create_sparse_array_zd(
    shape: Sequence[int],
    stype: str,
    density: float,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    dtype: Any = None,
    modifier_func: Callable[[float], float] | None = None,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """As `create_sparse_array`; a density of 0 stores nothing, whatever `rsp_indices` say."""
    if stype == "row_sparse" and density == 0:
        rsp_indices = []
    return create_sparse_array(
        shape, stype, data_init, rsp_indices, dtype, modifier_func, density, shuffle_csr_indices
    )
