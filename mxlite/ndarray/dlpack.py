"""Memory shared with other libraries through DLPack (the array API standard's exchange protocol)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import as_dtype, DTypeError
from .ndarray import NDArray


class _Capsule:
    """A bare capsule in the clothes of an object with `__dlpack__`."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def from_dlpack(dlpack: Any) -> NDArray:
    """An NDArray over the CPU memory of anything with `__dlpack__` (numpy, torch, ...), or of a capsule.

    Nothing is copied if the memory is writable and C-ordered; else the result is a copy. Raises DTypeError
    for a dtype that mxlite has not.
    """
    source = dlpack if hasattr(dlpack, "__dlpack__") else _Capsule(dlpack)
    try:
        shared = np.from_dlpack(source)
    except BufferError as error:
        raise DTypeError(f"cannot share this memory: {error}") from None
    as_dtype(shared.dtype)
    if not (shared.flags.c_contiguous and shared.flags.writeable and shared.flags.aligned):
        shared = np.array(shared, order="C")
    return NDArray(shared)


def to_dlpack_for_read(data: NDArray) -> Any:
    """A capsule of the array's memory, after all pending writes. Do not write through it."""
    data.wait_to_read()
    return data.storage.__dlpack__(max_version=(1, 0))


def to_dlpack_for_write(data: NDArray) -> Any:
    """A capsule of the array's memory, after all pending reads and writes."""
    data.wait_to_write()
    return data.storage.__dlpack__(max_version=(1, 0))
