"""Buffers of batches, reused when nobody holds the batch any more.

    take() -> array -> NDArray, views of it, later readers                all of them hold the lease
                lease dropped -> its memory is free and becomes the next batch's

An array that numpy makes from an object keeps that object alive, and so do all views of the array. So the
object, the lease, lives exactly as long as anything can still read the memory.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np


class _Lease:
    """An object that lends the memory of an array."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, memory: np.ndarray) -> None:
        self.__array_interface__: dict[str, Any] = memory.__array_interface__


class Buffers:
    """A pool of arrays of one shape and dtype. `most` free ones are kept."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, most: int) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._free: deque[np.ndarray] = deque(maxlen=most)

    def take(self) -> np.ndarray:
        """An array that nobody else uses; its contents are undefined."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self.shape, self.dtype)
        lease = _Lease(memory)
        # The finalizer holds the memory, so it lives at least as long as its lease.
        weakref.finalize(lease, self._free.append, memory).atexit = False
        return np.asarray(lease)
