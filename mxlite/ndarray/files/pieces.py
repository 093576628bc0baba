"""The bytes of an array in pieces, so that writing them takes no second array."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.disk.files import PIECE
from ..ndarray import NDArray

_LITTLE = sys.byteorder == "little"


def pieces(array: Any) -> Iterator[memoryview]:
    """The elements of an NDArray or a numpy array in C order, little-endian, in parts of at most PIECE bytes.

    Waits. For an array in main memory each piece is that very memory: use it before asking for the next.
    A GPU's pieces are copied to main memory one by one. Bytes in another order are copied a piece at a time.
    """
    if isinstance(array, NDArray):
        array = array.plain()
        if array.context.device_type == "gpu":
            flat = array.reshape((-1,))
            step = max(1, PIECE // np.dtype(array.dtype).itemsize)
            for start in range(0, array.size, step):
                yield from _of_memory(flat[start : start + step].look())
            return
        array = array.look()
    yield from _of_memory(np.asarray(array, order="C"))


def _of_memory(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    if not array.size:
        return
    raw, size = array.reshape(-1).view(np.uint8), array.itemsize
    step = PIECE - PIECE % size
    for start in range(0, raw.size, step):
        part = raw[start : start + step]
        yield part.data if _LITTLE else part.reshape(-1, size)[:, ::-1].reshape(-1).data
