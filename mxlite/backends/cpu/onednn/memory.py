"""Memory descriptors: dimensions, type and layout of an array in oneDNN's terms."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from ....core.errors import MXLiteError
from ....graph.ir import Shape
from ....graph.opdef import DType
from .constants import ANY, DTYPES
from .library import library, OneDNNError

MOST_ELEMENTS = 2**36


class Memory:
    """A descriptor. Without `keep` it is destroyed with this object; else `keep` owns it."""

    __slots__ = ("_destroy", "_keep", "handle", "nbytes")

    def __init__(self, handle: Any, keep: Any = None) -> None:
        lib = library()
        assert lib is not None
        self.handle = handle
        self.nbytes = int(lib.handle.dnnl_memory_desc_get_size(handle))
        self._keep = keep
        # None if the handle is not owned. Looked up now: at exit, modules are torn down first.
        self._destroy = lib.handle.dnnl_memory_desc_destroy if keep is None else None

    def __del__(self) -> None:
        if self._destroy is not None:
            self._destroy(self.handle)

    def __eq__(self, other: object) -> bool:
        lib = library()
        assert lib is not None
        if not isinstance(other, Memory):
            return NotImplemented
        return bool(lib.handle.dnnl_memory_desc_equal(self.handle, other.handle))

    __hash__ = None  # type: ignore[assignment]


@functools.lru_cache(maxsize=4096)
def memory(
    shape: Shape, dtype: DType, order: Sequence[int] | None = None, strides: Shape | None = None
) -> Memory:
    """A descriptor of `shape` in oneDNN's order of axes (N, C, H, W).

    `order` are the axes from slowest to fastest in memory, (0, 2, 3, 1) for channels last; `strides`, in
    elements, say it outright. Default: C order.
    """
    if strides is None:
        strides = dense_strides(shape, tuple(order) if order is not None else tuple(range(len(shape))))
    axes = ctypes.c_int64 * len(shape)
    return _new("dnnl_memory_desc_create_with_strides", shape, axes(*shape), dtype, axes(*strides))


@functools.lru_cache(maxsize=4096)
def memory_any(shape: Shape, dtype: DType) -> Memory:
    """A descriptor that leaves the layout to the primitive."""
    return _new(
        "dnnl_memory_desc_create_with_tag",
        shape,
        (ctypes.c_int64 * len(shape))(*shape),
        dtype,
        ctypes.c_int(ANY),
    )


def dense_strides(shape: Shape, order: Sequence[int]) -> Shape:
    """Strides in elements of an array without gaps whose axes follow `order` from slowest to fastest."""
    strides = [0] * len(shape)
    for i, axis in enumerate(order):
        strides[axis] = prod(shape[a] for a in order[i + 1 :])
    return tuple(strides)


def _new(function: str, shape: Shape, dims: Any, dtype: DType, layout: Any) -> Memory:
    lib = library()
    if lib is None:
        raise MXLiteError("oneDNN is not there; ask library() first.")
    if prod(shape) > MOST_ELEMENTS:
        raise OneDNNError(f"{shape} is more than oneDNN is asked about; sizes like that stop the process.")
    return Memory(lib.new(function, ctypes.c_int(len(shape)), dims, ctypes.c_int(DTYPES[dtype]), layout))
