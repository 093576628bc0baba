"""Scratch memory: pieces of a kernel's `work` array.

A kernel lists its pieces once, as (shape, dtype) pairs, in one function that both `workspace` and the kernel
call; so the bytes asked for and the bytes used cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from ..core.dtype import accumulator as accumulator
from ..core.errors import DTypeError
from ..graph.ir import Shape
from ..graph.opdef import DType

Piece = tuple[Shape, DType]

_ALIGN = 64  # bytes: a cache line
BLOCK = 1 << 16  # size in elements of a kernel's block, if it needs scratch for each element


def scratch_bytes(pieces: Iterable[Piece]) -> int:
    """Bytes of `work` that hold all `pieces`, each at a multiple of 64 bytes."""
    return sum(_padded(prod(shape) * dtype.itemsize) for shape, dtype in pieces)


def carve(work: Any, pieces: Iterable[Piece]) -> list[Any]:
    """The pieces as arrays inside `work`, one after the other. Their contents are garbage."""
    arrays = []
    offset = 0
    for shape, dtype in pieces:
        nbytes = prod(shape) * dtype.itemsize
        arrays.append(work[offset : offset + nbytes].view(dtype).reshape(shape))
        offset += _padded(nbytes)
    return arrays


def in_accumulator(data: DType | None, names: Sequence[str], dtypes: Sequence[DType | None]) -> DType | None:
    """The accumulator of `data`, None if that is unknown. Raises DTypeError for the first of `names` whose
    type in `dtypes` is known and another.
    """
    if data is None:
        return None
    wide = accumulator(data)
    for name, dtype in zip(names, dtypes):
        if dtype is not None and dtype != wide:
            raise DTypeError(f"{name} must be {wide} for data of {data}, got {dtype}.")
    return wide


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
