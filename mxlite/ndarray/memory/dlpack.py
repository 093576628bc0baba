"""Memory shared with other libraries: DLPack (the array API standard's exchange protocol), and the CUDA array
interface of Numba, CuPy and PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...backends import backend_of
from ...backends.gpu.runtime import dlpack as capsules
from ...core import as_dtype, Context, current_context, DeviceError, DTypeError, gpu
from ...engine import Var
from ..ndarray import NDArray
from .storage import Storage
from .transfer import push_copy


class _Capsule:
    """An object with `__dlpack__` around a bare capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return capsules.device_in(self._capsule)


def from_dlpack(dlpack: Any) -> NDArray:
    """An NDArray over the memory of anything with `__dlpack__` (numpy, torch, CuPy, ...), or of a capsule.

    It is on the CPU or on a GPU, where the memory is. Nothing is copied if that is writable and C-ordered;
    else the result is a copy. Raises DTypeError for a dtype that mxlite does not have.
    """
    source = dlpack if hasattr(dlpack, "__dlpack__") else _Capsule(dlpack)
    kind, number = (int(n) for n in source.__dlpack_device__())
    if kind == capsules.CUDA:
        return _from_device(source, gpu(number))
    try:
        shared = np.from_dlpack(source)
    except BufferError as error:
        raise DTypeError(f"cannot share this memory: {error}") from None
    as_dtype(shared.dtype)
    if not (shared.flags.c_contiguous and shared.flags.writeable and shared.flags.aligned):
        shared = np.array(shared, order="C")
    return NDArray(shared)


def _from_device(source: Any, ctx: Context) -> NDArray:
    backend = _gpu(ctx)
    stream = backend.device.compute  # the producer makes it wait for its pending work
    try:
        capsule = source.__dlpack__(stream=stream, max_version=capsules.VERSION)
    except TypeError:  # older than versions
        capsule = source.__dlpack__(stream=stream)
    return _adopt(backend, capsules.take(capsule), ctx)


def from_cuda_array_interface(source: Any, ctx: Context | None = None) -> NDArray:
    """An NDArray over the memory of anything with `__cuda_array_interface__`, on the GPU `ctx`.

    None: the current device if that is a GPU, else gpu(0); the interface does not say. The result is a copy
    if the memory is read-only or not C-ordered. Our work comes after that of the interface's stream.
    """
    told = source.__cuda_array_interface__
    if told.get("mask") is not None:
        raise DTypeError("an array with a mask cannot be shared.")
    if ctx is None:
        ctx = current_context() if current_context().device_type == "gpu" else gpu(0)
    backend, dtype = _gpu(ctx), as_dtype(np.dtype(told["typestr"]))
    shape, (address, is_read_only) = tuple(told["shape"]), told["data"]
    strides = told.get("strides")
    if strides is None:
        strides = tuple(prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape)))
    if told.get("stream") is not None:
        backend.device.await_stream(told["stream"])
    held = [source]
    release: Callable[[], None] = held.clear
    place = (capsules.CUDA, backend.device.index)
    given = capsules.Given(address, place, shape, tuple(strides), dtype, is_read_only, release)
    return _adopt(backend, given, ctx)


def _gpu(ctx: Context) -> Any:
    backend = backend_of(ctx)
    if not backend.is_remote:
        raise DeviceError(f"memory of a GPU is shared with a GPU, not with {ctx}.")
    return backend


def _adopt(backend: Any, given: capsules.Given, ctx: Context) -> NDArray:
    """The array itself, or a copy in C order of its own."""
    try:
        as_dtype(given.dtype)
    except DTypeError:
        given.release()
        raise
    var = Var()
    raw = backend.adopt(given, var)
    if raw.flags.c_contiguous and not given.is_read_only:
        return NDArray(raw, ctx, var)
    foreign = Storage.adopt(raw, ctx)
    foreign.var = var
    result = NDArray.fresh(raw.shape, raw.dtype, ctx)
    push_copy(foreign, result, name="from_dlpack")
    return result
