"""Capsules of DLPack: the memory of an array, handed to another library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TYPE_CHECKING

from ...backends.gpu.runtime import dlpack as capsules

if TYPE_CHECKING:
    from ..ndarray import NDArray


def to_dlpack_for_read(data: NDArray) -> Any:
    """A capsule of the array's memory, after all pending writes. Do not write through it."""
    return _capsule(data, data.wait_to_read)


def to_dlpack_for_write(data: NDArray) -> Any:
    """A capsule of the array's memory, after all pending reads and writes."""
    return _capsule(data, data.wait_to_write)


def _capsule(data: NDArray, wait: Callable[[], None]) -> Any:
    storage = data.storage
    wait()
    wishes = {"max_version": capsules.VERSION, "dl_device": None, "copy": None}
    return data.backend.dlpack(storage, data.var, stream=None, **wishes)
