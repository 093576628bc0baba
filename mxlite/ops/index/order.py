"""Sorted positions along an axis: the core of sort, argsort and topk.

Every number is mapped to an unsigned whole number, its *key*, that sorts as the number does. Key and
position together are one 64-bit number, (key << 32) | position, so that an ordinary sort in place, fast and
without a temporary, gives the order, and equals stay in their order. Keys of 64 bits take two rounds: by
their low half, then by their high half, which keeps the order of the first (least significant digit first).
-0 and 0 are equal; nan is above every number, so it comes last when ascending and first when descending.

Arrays are seen as (outer, inner, length), the sorted axis last; a *block* is some of these lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...core.dtype import is_floating
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..blocks import PIECE
from ..scratch import BLOCK, carve, Piece, scratch_bytes
from ..shape.reshape import axis_of

_UINT64 = np.dtype("uint64")
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MOST_LINES = 1024


@record
class Lines:
    """The one-dimensional lines of an array along an axis: `inner` * `outer` lines, each `length` long."""

    outer: int
    length: int
    inner: int

    @classmethod
    def of(cls, shape: Shape, axis: int | None) -> Lines:
        """The lines along `axis`; one line of all elements if it is None. Raises ShapeError."""
        if axis is None:
            return cls(1, prod(shape), 1)
        axis = axis_of(axis, len(shape))
        return cls(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))

    def seen(self, array: Any, length: int | None = None) -> Any:
        """`array` as (outer, inner, length); `length` is that of its lines, by default these lines'."""
        n = self.length if length is None else length
        return array.reshape(self.outer, n, self.inner).transpose(0, 2, 1)

    def blocks(self, most: int) -> Iterator[tuple[slice, slice]]:
        """Parts of (outer, inner), of up to `most` lines each."""
        several = max(1, most // max(1, self.inner))
        columns = min(self.inner, most)
        for o in range(0, self.outer, several):
            for i in range(0, self.inner, columns):
                yield slice(o, min(o + several, self.outer)), slice(i, min(i + columns, self.inner))

    def places(self, xp: Any, block: tuple[slice, slice], positions: Any) -> None:
        """Turn positions in the lines of `block` into flat indices, in place."""
        o, i = block
        outer = xp.arange(o.start, o.stop)[:, None] * (self.length * self.inner)
        start = outer + xp.arange(i.start, i.stop)
        if self.inner != 1:
            xp.multiply(positions, self.inner, out=positions)
        xp.add(positions, start[:, :, None], out=positions)


def _pieces(lines: Lines, dtype: DType) -> tuple[int, list[Piece]]:
    """Lines in a block, and their scratch: keys, and one or two times as much for sorting."""
    count = min(lines.outer * lines.inner, _MOST_LINES, max(1, BLOCK // max(1, lines.length)))
    whole = ((count * lines.length,), _UINT64)
    if dtype.itemsize == 8:
        return count, [whole, whole, whole]
    return count, [whole, ((count * lines.length,), np.dtype("uint32"))]


def order_bytes(shape: Shape, axis: int | None, dtype: DType) -> int:
    """Scratch in bytes that `orders` needs. At most as much as BLOCK elements or one line take."""
    return scratch_bytes(_pieces(Lines.of(shape, axis), dtype)[1])


def orders(
    xp: Any, data: Any, axis: int | None, first: int, ascending: bool, work: Any
) -> Iterator[tuple[tuple[slice, slice], Any, Any]]:
    """(block, positions, spare) for each block of lines: positions (lines, lines, `first`) int64, in order.

    The positions may be changed. `spare` is scratch for as many elements of the data's dtype.
    """
    lines = Lines.of(data.shape, axis)
    most, pieces = _pieces(lines, data.dtype)
    if not data.size or not first:
        return
    seen, scratch = lines.seen(data), carve(work, pieces)
    for block in lines.blocks(most):
        part = seen[block]
        keys = scratch[0][: part.size]
        _keys(xp, part, keys, scratch[-1], ascending)
        if len(scratch) == 3:
            positions = _two_rounds(xp, keys, scratch[1][: part.size], scratch[2][: part.size], part.shape)
        else:
            positions = _one_round(xp, keys.reshape(part.shape), first)
        positions = positions[..., :first]
        xp.bitwise_and(positions, _LOW, out=positions)
        yield block, positions.view("int64"), scratch[-1]


def take_values(xp: Any, data: Any, places: Any, spare: Any, into: Any) -> None:
    """``into = data.reshape(-1)[places]``, with `spare` as a temporary."""
    # Positions of the first few are not adjacent in the scratch: a line at a time is a row.
    values = spare[: places.size * data.dtype.itemsize // spare.itemsize + 1].view(data.dtype)[: places.size]
    if places.flags.c_contiguous:
        xp.take(data.reshape(-1), places.reshape(-1), out=values, mode="clip")
        into[...] = values.reshape(places.shape)
        return
    flat = data.reshape(-1)
    columns = max(1, PIECE // (places.shape[0] * places.shape[1]))
    for begin in range(0, places.shape[2], columns):
        into[..., begin : begin + columns] = flat[places[..., begin : begin + columns]]


def _keys(xp: Any, part: Any, keys: Any, spare: Any, ascending: bool) -> None:
    """Write the keys of `part` into the flat array `keys`."""
    floating = is_floating(part.dtype)
    wide = part.dtype.itemsize == 8
    kind = np.dtype(("float" if floating else "int") + ("64" if wide else "32"))
    signed, unsigned = (np.int64, np.uint64) if wide else (np.int32, np.uint32)
    bits = kind.itemsize * 8
    top = unsigned(1 << (bits - 1))
    values = spare[: part.size].view(kind)
    xp.copyto(values.reshape(part.shape), part, casting="unsafe")
    for begin in range(0, values.size, PIECE):
        x = values[begin : begin + PIECE]
        if floating:
            x += 0  # -0 becomes 0
            x[x != x] = xp.nan  # nans of both signs
            negative = x.view(signed) >> (bits - 1)  # all ones, or 0
            key = x.view(unsigned) ^ (negative.view(unsigned) | top)
        else:
            key = x.view(unsigned) ^ top
        keys[begin : begin + PIECE] = key if ascending else ~key


def _add_positions(xp: Any, mixed: Any) -> None:
    """Put the position in its line into the low half of every number."""
    for begin in range(0, mixed.shape[-1], PIECE):
        part = mixed[..., begin : begin + PIECE]
        part |= xp.arange(begin, begin + part.shape[-1], dtype=_UINT64)


def _one_round(xp: Any, keys: Any, first: int) -> Any:
    """32-bit keys -> numbers in order, the position in the low half. Only the `first` ones are in order."""
    xp.left_shift(keys, _SHIFT, out=keys)
    _add_positions(xp, keys)
    if 4 * first < keys.shape[-1]:
        keys.partition(first - 1, axis=-1)
        keys[..., :first].sort(axis=-1)
    else:
        keys.sort(axis=-1)
    return keys


def _two_rounds(xp: Any, keys: Any, low: Any, high: Any, shape: Shape) -> Any:
    """64-bit keys -> positions in order."""
    count, length = keys.size // shape[-1], shape[-1]

    def shift_lines(flat: Any, sign: int) -> Any:
        """Convert positions in lines to positions in the block, or back."""
        by_line = flat.reshape(count, length).view("int64")
        by_line += (xp.arange(count) * (sign * length))[:, None]
        return by_line.reshape(-1)

    xp.left_shift(keys, _SHIFT, out=low)
    _add_positions(xp, low.reshape(shape))
    low.reshape(shape).sort(axis=-1)
    xp.bitwise_and(low, _LOW, out=low)
    xp.take(keys, shift_lines(low, 1), out=high, mode="clip")
    xp.bitwise_and(high, ~_LOW, out=high)
    _add_positions(xp, high.reshape(shape))
    high.reshape(shape).sort(axis=-1)
    xp.bitwise_and(high, _LOW, out=high)
    xp.take(low, shift_lines(high, 1), out=keys, mode="clip")
    shift_lines(keys, -1)
    return keys.reshape(shape)


def put_back(xp: Any, axis: int | None, positions: Any, source: Any, target: Any) -> None:
    """``target[positions] = source`` along `axis`; 0 elsewhere. Positions of one line are all different."""
    lines = Lines.of(target.shape, axis)
    first = positions.size // max(1, lines.outer * lines.inner)
    if first < lines.length:
        target.fill(0)
    if not positions.size:
        return
    where, given, flat = lines.seen(positions, first), lines.seen(source, first), target.reshape(-1)
    most = max(1, PIECE // first)
    columns = max(1, PIECE // most)
    for block in lines.blocks(most):
        for begin in range(0, first, columns):
            places = where[block][..., begin : begin + columns].astype(np.int64)
            lines.places(xp, block, places)
            flat[places] = given[block][..., begin : begin + columns]
