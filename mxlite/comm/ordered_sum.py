"""Sums over ranks, added up in the order of the ranks: the same bits whatever carries them.

The sum of MPI adds in an order of its own, which depends on the library, on the number of ranks and on the
length of the message. Here rank r gets the r-th part of everybody's array, adds the parts in the order of the
ranks, and gives the result to all:

    all-to-all     part r of every rank      ->  rank r
    own sum        ((p0 + p1) + p2) + ...        in float32 where the array is of 16 bits, rounded once
    all-gather     part r, summed            ->  every rank

So the result is that of one process that adds up the arrays of N micro-batches one after the other. An array
goes in pieces of at most PIECE bytes, IN_FLIGHT of them at a time: the scratch is as large as these, and the
library needs next to none of its own. Every rank starts the operations in the same order, as it has to: the
next piece leaves when the one before it is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.dtype import is_floating
from .communicator import Communicator, Request

PIECE = 1 << 18
"""Bytes of a piece, at most. Libraries copy messages of more than a MiB through memory of their own."""

IN_FLIGHT = 2

ALIGN = 64


def parts(count: int, ranks: int) -> tuple[int, ...]:
    """Lengths of the parts into which `count` elements are cut, one for each rank: the first are longest."""
    short, more = divmod(count, ranks)
    return tuple(short + (q < more) for q in range(ranks))


def _slot(count: int, itemsize: int, ranks: int) -> int:
    """Bytes that a piece of `count` elements takes of the scratch: the parts received, and a float32 sum."""
    longest = -(-count // ranks)
    wide = 4 * longest if itemsize == 2 else 0
    return sum(-(-n // ALIGN) * ALIGN for n in (ranks * longest * itemsize, wide))


def sum_workspace(count: int, itemsize: int, ranks: int) -> int:
    """Bytes of scratch that `sum_over_ranks` needs for `count` elements."""
    piece = min(count, PIECE // itemsize)
    return min(IN_FLIGHT, -(-count // piece) if piece else 0) * _slot(piece, itemsize, ranks)


def sum_over_ranks(comm: Communicator, array: Any, work: Any) -> None:
    """Replace `array`, 1-D and contiguous, by its sum over all ranks. Every rank calls it with one of its
    size.

    work: 1-D uint8 of `sum_workspace` bytes. The sum of flags, an array of uint8, is their union.
    """
    if comm.size == 1:
        return
    step = PIECE // array.itemsize
    slot = _slot(min(array.size, step), array.itemsize, comm.size)
    pieces = [
        _Piece(comm, array[at : at + step], work[n % IN_FLIGHT * slot :][:slot])
        for n, at in enumerate(range(0, array.size, step))
    ]
    for piece in pieces[:IN_FLIGHT]:
        piece.scatter()
    for n, piece in enumerate(pieces):
        piece.gather()
        if n + IN_FLIGHT < len(pieces):
            pieces[n + IN_FLIGHT].scatter()
    for piece in pieces:
        piece.finish()


class _Piece:
    """A piece of an array on its way: scattered, summed, gathered."""

    __slots__ = ("_array", "_bytes", "_comm", "_counts", "_received", "_request", "_total", "_wide")

    _request: Request

    def __init__(self, comm: Communicator, array: Any, work: Any) -> None:
        self._comm, self._array = comm, array
        counts = parts(array.size, comm.size)
        own = counts[comm.rank]
        start = sum(counts[: comm.rank])
        self._bytes = array.view(np.uint8)
        self._counts = [n * array.itemsize for n in counts]
        self._received = work[: comm.size * own * array.itemsize]
        self._total = array[start : start + own]
        self._wide = None
        if array.itemsize == 2 and is_floating(array.dtype):
            at = -(-len(self._received) // ALIGN) * ALIGN
            self._wide = work[at : at + 4 * own].view(np.float32)

    def scatter(self) -> None:
        """Send each rank its part."""
        own = [self._counts[self._comm.rank]] * self._comm.size
        self._request = self._comm.all_to_all(self._bytes, self._counts, self._received, own)

    def gather(self) -> None:
        """Add up what has come, and give it to all."""
        self._comm.wait(self._request)
        rows = self._received.view(self._array.dtype).reshape(self._comm.size, -1)
        self._add(list(rows))
        self._request = self._comm.all_gather(self._bytes, self._counts)

    def _add(self, rows: Sequence[Any]) -> None:
        total = self._total if self._wide is None else self._wide
        total[...] = rows[0]
        join = np.bitwise_or if total.dtype == np.uint8 else np.add
        with np.errstate(over="ignore", invalid="ignore"):  # gradients may overflow: a loss scale looks
            for row in rows[1:]:
                join(total, row, out=total)
            if self._wide is not None:
                self._total[...] = total

    def finish(self) -> None:
        """Wait until all ranks' parts are there."""
        self._comm.wait(self._request)
