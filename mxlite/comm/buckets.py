"""Messages that several small arrays share: one of a few bytes takes as long as one of some ten thousand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from .communicator import Collectives, HOST, Window
from .ordered_sum import aligned, PIECE, sum_over_ranks, sum_workspace

BUCKET = PIECE
"""Bytes of arrays that share a message, at most."""

SMALL = BUCKET // 8
"""Bytes of an array that shares, at most. Larger ones travel alone, in place."""


def buckets(arrays: Sequence[tuple[int, Any]]) -> Iterator[list[int]]:
    """Numbers of the arrays, given as (bytes, type) in the order in which they arise, that share a message.

    Messages leave in the order of their last arrays, which are of one type.
    """
    waiting: dict[Any, list[int]] = {}
    size: Counter[Any] = Counter()
    for i, (nbytes, dtype) in enumerate(arrays):
        if nbytes > SMALL:
            yield [i]
            continue
        if size[dtype] + nbytes > BUCKET:
            yield waiting.pop(dtype)
            size[dtype] = 0
        waiting.setdefault(dtype, []).append(i)
        size[dtype] += nbytes
    yield from waiting.values()


def bucket_workspace(
    shapes: Sequence[tuple[int, ...]], itemsize: int, ranks: int, window: Window = HOST
) -> int:
    """Bytes of scratch that `sum_bucket` needs for arrays of these shapes."""
    count = sum(map(prod, shapes))
    together = aligned(count * itemsize) if len(shapes) > 1 else 0
    return together + sum_workspace(count, itemsize, ranks, window)


def sum_bucket(comm: Collectives, arrays: Sequence[Any], sums: Sequence[Any], work: Any) -> None:
    """Write the sum of each array over all ranks to `sums`, which may be the arrays themselves.

    work: 1-D uint8 of `bucket_workspace` bytes. One array is summed where its sum is to be, several in
    `work`.
    """
    if len(arrays) == 1:
        if sums[0] is not arrays[0]:
            comm.put(sums[0], arrays[0])
        sum_over_ranks(comm, sums[0].reshape(-1), work)
        return
    together = work[: sum(x.nbytes for x in arrays)].view(arrays[0].dtype)
    parts, start = [], 0
    for x in arrays:
        parts.append(together[start : start + x.size].reshape(x.shape))
        comm.put(parts[-1], x)
        start += x.size
    sum_over_ranks(comm, together, work[aligned(together.nbytes) :])
    for out, part in zip(sums, parts):
        comm.put(out, part)
