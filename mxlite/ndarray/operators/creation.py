"""Arrays from shapes, numbers and other arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...core import as_dtype, Context, current_context, ShapeError
from ...core.errors import DTypeError
from ...core.supplied import Supplied
from ..calls.invoke import call_of, invoke
from ..memory.storage import check_shape, target
from ..memory.transfer import push_fill, put
from ..ndarray import NDArray

sparse_array: Supplied[Callable[[Any, Context | None, Any], NDArray]] = Supplied()
"""`mx.nd.sparse.array`."""

sparse_zeros: Supplied[Callable[[Any, Any, Context | None, Any], NDArray]] = Supplied()
"""Zeros of a sparse storage type, none of which is stored."""


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array with the values of a number, nested lists, a numpy array or an NDArray.

    A sparse array, also one of scipy, gives a sparse one. `dtype` None: that of an NDArray, else float32,
    also for numpy arrays of other types, as in MXNet.
    """
    if getattr(source_array, "stype", "default") != "default" or hasattr(source_array, "tocsr"):
        return sparse_array.call(source_array, ctx, dtype)
    if isinstance(source_array, NDArray):
        kind = source_array.storage.dtype if dtype is None else as_dtype(dtype)
        result = NDArray.fresh(source_array.shape, kind, ctx or current_context())
        return source_array.copyto(result)
    device, kind = target(ctx, dtype)
    try:
        values = np.asarray(source_array)
    except ValueError as error:
        raise ShapeError(f"cannot make an array of this {type(source_array).__name__}: {error}") from None
    if values.dtype.kind == "U":  # numbers as text, as a program reads them from a file
        try:
            values = values.astype(kind)
        except ValueError as error:
            raise DTypeError(f"an array holds numbers: {error}.") from None
    if values.dtype.kind not in "biuf" and values.dtype.name != "bfloat16":
        raise DTypeError(f"an array holds numbers, got {values.dtype} from a {type(source_array).__name__}.")
    result = NDArray.fresh(values.shape, kind, device)
    put(values, result, name="array")
    return result


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None) -> NDArray:
    """An array of `shape` (an int or ints) that holds garbage; zeros, if `stype` is a sparse one."""
    if stype not in (None, "default"):
        return _sparse_zeros(stype, shape, ctx, dtype)
    device, kind = target(ctx, dtype)
    return NDArray.fresh(check_shape(shape), kind, device)


def full(
    shape: Any, val: float, ctx: Context | None = None, dtype: Any = None, out: NDArray | None = None
) -> NDArray:
    """An array of `shape` with every element `val`."""
    if out is None:
        out = empty(shape, ctx, dtype)
    elif out.shape != check_shape(shape):
        raise ShapeError(f"out must be of shape {check_shape(shape)}, but it is {out.shape}.")
    push_fill(out, val, name="full")
    return out


def zeros(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None, **kwargs: Any
) -> NDArray:
    """An array of zeros; `zeros(3)` is of shape (3,)."""
    if stype not in (None, "default"):
        return _sparse_zeros(stype, shape, ctx, dtype)
    return full(shape, 0, ctx, dtype, **kwargs)


def _sparse_zeros(stype: str, shape: Any, ctx: Context | None, dtype: Any) -> NDArray:
    return sparse_zeros.call(stype, check_shape(shape), ctx, dtype)


def ones(shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """An array of ones."""
    return full(shape, 1, ctx, dtype, **kwargs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    ctx: Context | None = None,
    dtype: Any = None,
) -> NDArray:
    """start, start + step, ... as long as it is before `stop`, each `repeat` times.

    With one number, `arange(n)` counts from 0. For a whole-number dtype, `start` and `step` are cut towards
    0, and the count stays. `infer_range` is accepted for MXNet's sake and must be False.
    """
    if infer_range:
        raise ShapeError("arange cannot infer its range: an array by itself has no users to infer it from.")
    if stop is None:
        start, stop = 0, start
    device, kind = target(ctx, dtype)
    values = np.arange(start, stop, step, dtype="float64" if kind.kind not in "iu" else None)
    if kind.kind in "iu" and values.dtype.kind == "f":
        values = np.arange(len(values)) * int(step) + int(start)
    if repeat < 1:
        raise ShapeError(f"arange: repeat must be at least 1, got {repeat}.")
    return array(np.repeat(values, repeat), device, kind)


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """(N, M) zeros with ones on diagonal `k`; M = 0 means square."""
    device, kind = target(ctx, dtype)
    return array(np.eye(N, M or N, k), device, kind)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: Any = None,
) -> NDArray:
    """`num` numbers from `start` to `stop`, equally far apart, `stop` being the last with `endpoint`."""
    device, kind = target(ctx, dtype)
    given = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": kind}
    return invoke(call_of("_linspace", given), (), None, device, NDArray)


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Arrays joined along an existing axis. One array alone is copied, unless `always_copy` is False."""
    arrays = list(arrays)
    if not arrays:
        raise ShapeError("concatenate needs at least one array.")
    if len(arrays) == 1:
        return arrays[0].copy() if always_copy else arrays[0]
    return invoke(call_of("Concat", {"dim": axis, "num_args": len(arrays)}), arrays)


def from_numpy(ndarray: Any, zero_copy: bool = True) -> NDArray:
    """An NDArray that shares the memory of a C-ordered, writable numpy array; a copy if `zero_copy` is False.

    Keeps the dtype. `ndarray` is read-only from then on: what is pushed may read the memory at any time.
    Wait for the NDArray before looking through `ndarray`.
    """
    if not zero_copy:
        return array(ndarray, dtype=as_dtype(ndarray.dtype))
    before = _SHARED.get(id(ndarray))
    if before is not None and before is ndarray:
        before.flags.writeable = True  # as it was before it was shared the first time
    made = sharing(ndarray.view())
    ndarray.flags.writeable = False
    _SHARED[id(ndarray)] = ndarray
    return made


def sharing(ndarray: Any) -> NDArray:
    """An NDArray in the memory of a numpy array, which stays as it is."""
    as_dtype(ndarray.dtype)
    if not (ndarray.flags.c_contiguous and ndarray.flags.writeable and ndarray.flags.aligned):
        raise ShapeError("from_numpy shares only C-ordered, writable arrays; pass zero_copy=False to copy.")
    return NDArray(ndarray)


_SHARED: WeakValueDictionary[int, np.ndarray[Any, Any]] = WeakValueDictionary()
"""The numpy arrays that `from_numpy` has made read-only, by id."""
