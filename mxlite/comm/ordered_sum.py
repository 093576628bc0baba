"""Sums over ranks, added up in the order of the ranks: the same bits whatever carries them.

The sum of MPI adds in an order of its own, which depends on the library, on the number of ranks and on the
length of the message. Here rank r gets the r-th part of everybody's array, adds the parts in the order of the
ranks, and gives the result to all:

    all-to-all     part r of every rank      ->  rank r
    own sum        ((p0 + p1) + p2) + ...        in float32 where the array is of 16 bits, rounded once
    all-gather     part r, summed            ->  every rank

So the result is that of one process that adds up the arrays of N micro-batches one after the other. An array
goes in pieces of at most PIECE bytes, as many at a time as its window has: the scratch is as large as these,
and the library needs next to none of its own. Every rank starts the operations in the same order, as it has
to: the next piece leaves when the one before it is summed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core.dtype import is_floating
from .communicator import Collectives, HOST, Request, Window

PIECE = 1 << 18
"""Bytes of a piece, at most. Libraries copy messages of more than a MiB through memory of their own."""

ALIGN = 64


def parts(count: int, ranks: int) -> tuple[int, ...]:
    """Lengths of the parts into which `count` elements are cut, one for each rank: the first are longest."""
    short, more = divmod(count, ranks)
    return tuple(short + (q < more) for q in range(ranks))


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to a whole cache line."""
    return -(-nbytes // ALIGN) * ALIGN


def _slot(count: int, itemsize: int, ranks: int, window: Window) -> int:
    """Bytes that a piece of `count` elements takes of the scratch: the parts received, and a float32 sum."""
    longest = -(-count // ranks)
    wide = 4 * longest if itemsize == 2 and window.wide else 0
    return aligned(ranks * longest * itemsize) + aligned(wide)


def sum_workspace(count: int, itemsize: int, ranks: int, window: Window = HOST) -> int:
    """Bytes of scratch that `sum_over_ranks` needs for `count` elements."""
    piece = min(count, PIECE // itemsize)
    return min(window.pieces, -(-count // piece) if piece else 0) * _slot(piece, itemsize, ranks, window)


def shard_length(count: int, itemsize: int, ranks: int) -> int:
    """The most elements of an array of `count` that one rank adds up: its parts of all pieces."""
    step = PIECE // itemsize
    whole, rest = divmod(count, step)
    return whole * -(-step // ranks) + -(-rest // ranks)


def own_parts(count: int, step: int, ranks: int, rank: int) -> Iterator[slice]:
    """The parts that `rank` adds up of an array of `count` elements in pieces of `step`, in their order.

    It keeps them one after another: `shard_length` elements, fewer where other ranks have longer parts.
    """
    for at in range(0, count, step):
        lengths = parts(min(step, count - at), ranks)
        start = at + sum(lengths[:rank])
        if lengths[rank]:
            yield slice(start, start + lengths[rank])


def sum_over_ranks(comm: Collectives, array: Any, work: Any) -> None:
    """Replace `array`, 1-D and contiguous, by its sum over all ranks. Every rank calls it with one of its
    size.

    work: 1-D uint8 of `sum_workspace` bytes. The sum of flags, an array of uint8, is their union.
    """
    if comm.size == 1:
        return

    def keep(part: slice, own: slice, total: Any) -> None:
        comm.put(array[part], total)

    reduce_and_gather(comm, array, array, work, keep)


def reduce_and_gather(
    comm: Collectives, array: Any, result: Any, work: Any, put: Callable[[slice, slice, Any], None]
) -> None:
    """Sum `array` over all ranks, and give all ranks what each has put into its part of `result`.

    Both are 1-D, contiguous, of one size and type; they may be the same. `put(part, own, total)` is called on
    each rank for its part of each piece: `total` is the sum, `part` is where it lies in the array, `own`
    where in an array of just this rank's parts. It writes `result[part]`.
    """
    pieces = list[_Piece]()
    for piece in _summed(comm, array, work, put):
        piece.gather(result)
        pieces.append(piece)
    for piece in pieces:
        piece.finish()


def sum_to_parts(comm: Collectives, array: Any, own: Any, work: Any) -> None:
    """Write this rank's parts of the sum of `array` over all ranks to `own`, one after another, and zeros
    behind them.

    Both are 1-D, contiguous and of one type; `own` has `shard_length` elements. work: as in `sum_over_ranks`.
    """

    def put(part: slice, place: slice, total: Any) -> None:
        comm.put(own[place], total)

    done = 0
    for piece in _summed(comm, array, work, put):
        done = piece.own.stop
    if done < own.size:
        comm.put(own[done:], 0)


def gather_parts(comm: Collectives, own: Any, result: Any) -> None:
    """Give all ranks in `result` the array of which each has its parts in `own`, as after `sum_to_parts`.

    Both are 1-D, contiguous and of one type. Pieces of the result go where they lie, without scratch.
    """
    flying: deque[_Piece] = deque()
    for piece in _pieces(comm, result, None):
        comm.put(result[piece.part], own[piece.own])
        if len(flying) == comm.window.pieces:
            flying.popleft().finish()
        piece.gather(result)
        flying.append(piece)
    for piece in flying:
        piece.finish()


def _pieces(comm: Collectives, array: Any, work: Any) -> Iterator[_Piece]:
    """The pieces of `array`, in their order; those of a window share the scratch."""
    step = PIECE // array.itemsize
    slot = _slot(min(array.size, step), array.itemsize, comm.size, comm.window)
    done = 0
    for n, at in enumerate(range(0, array.size, step)):
        scratch = None if work is None else work[n % comm.window.pieces * slot :][:slot]
        piece = _Piece(comm, array, slice(at, min(at + step, array.size)), done, scratch)
        done = piece.own.stop
        yield piece


def _summed(
    comm: Collectives, array: Any, work: Any, put: Callable[[slice, slice, Any], None]
) -> Iterator[_Piece]:
    """The pieces of `array`, each once `put` has got the sum of this rank's part of it."""
    flying: deque[_Piece] = deque()
    for piece in _pieces(comm, array, work):
        if len(flying) == comm.window.pieces:
            yield flying.popleft().summed(put)
        piece.scatter()
        flying.append(piece)
    while flying:
        yield flying.popleft().summed(put)


class _Piece:
    """A piece of an array on its way: scattered, summed, gathered.

    `part` is this rank's part of it in the array, `own` the same among this rank's parts.
    """

    __slots__ = ("_array", "_comm", "_counts", "_place", "_received", "_request", "_wide", "own", "part")

    _request: Request

    def __init__(self, comm: Collectives, array: Any, place: slice, done: int, work: Any) -> None:
        self._comm, self._place = comm, place
        self._array = array[place]
        counts = parts(self._array.size, comm.size)
        start, count, dtype = place.start + sum(counts[: comm.rank]), counts[comm.rank], array.dtype
        self.part = slice(start, start + count)
        self.own = slice(done, done + count)
        self._counts = [n * dtype.itemsize for n in counts]
        self._wide: Any = None
        if work is None:
            return
        nbytes = comm.size * count * dtype.itemsize
        self._received = work[:nbytes].view(dtype).reshape(comm.size, count)
        if dtype.itemsize == 2 and comm.window.wide and is_floating(dtype):
            self._wide = work[aligned(nbytes) :][: 4 * count].view(np.float32)

    def scatter(self) -> None:
        """Send each rank its part."""
        own = [self._counts[self._comm.rank]] * self._comm.size
        received = self._received.reshape(-1).view(np.uint8)
        self._request = self._comm.all_to_all(self._array.view(np.uint8), self._counts, received, own)

    def summed(self, put: Callable[[slice, slice, Any], None]) -> _Piece:
        """The piece itself, once what has come is added up and put."""
        self._comm.wait(self._request)
        put(self.part, self.own, self._comm.add_up(self._received, self._wide))
        return self

    def gather(self, result: Any) -> None:
        """Give all ranks what each has in its part of this piece of `result`."""
        self._request = self._comm.all_gather(result[self._place].view(np.uint8), self._counts)

    def finish(self) -> None:
        """Wait until all ranks' parts are there."""
        self._comm.wait(self._request)
