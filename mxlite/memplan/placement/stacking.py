"""Lowest-gap placement of one range after another, in the subset of Python that `compiled` accepts.

The tree that gaps.py describes, in arrays: row x of a table holds the blocks of `used` of node x, row
2 * leaves + x those of `covered`. Row r is pool[at[r]], ...: low, high, low, high, ... of count[r] blocks,
with room for room[r]; a row that grows beyond that moves to the end of the pool, of which left[0] of left[1]
numbers are taken.
"""

from __future__ import annotations

from typing import NamedTuple

from ..compiled import Ints

NO_ROOM = -1  # the functions below are compiled without this file's globals


class Ranges(NamedTuple):
    """Moments [start, stop) and bytes of each range."""

    start: Ints
    stop: Ints
    size: Ints


def add(pool: Ints, at: Ints, count: Ints, room: Ints, left: Ints, row: int, low: int, high: int) -> int:
    """Add [low, high) to a row: 1 if it was not there, 0 if it was, NO_ROOM if the pool is full."""
    base = at[row]
    number = count[row]
    first = 0
    while first < number and pool[base + 2 * first + 1] < low:
        first += 1
    if first < number and pool[base + 2 * first] <= low and pool[base + 2 * first + 1] >= high:
        return 0
    last = first
    while last < number and pool[base + 2 * last] <= high:
        if pool[base + 2 * last] < low:
            low = pool[base + 2 * last]
        if pool[base + 2 * last + 1] > high:
            high = pool[base + 2 * last + 1]
        last += 1
    # Blocks [first, last) touch the new one and are merged with it.
    if number == room[row] and last == first:
        wanted = number + number + 2
        if left[0] + 2 * wanted > left[1]:
            return -1
        i = 0
        while i < 2 * number:
            pool[left[0] + i] = pool[base + i]
            i += 1
        base = left[0]
        at[row] = base
        room[row] = wanted
        left[0] += 2 * wanted
    if last == first:
        i = 2 * number - 1
        while i >= 2 * first:
            pool[base + i + 2] = pool[base + i]
            i -= 1
        count[row] = number + 1
    elif last > first + 1:
        i = 2 * last
        while i < 2 * number:
            pool[base + i - 2 * (last - first - 1)] = pool[base + i]
            i += 1
        count[row] = number - (last - first - 1)
    pool[base + 2 * first] = low
    pool[base + 2 * first + 1] = high
    return 1


def take(
    pool: Ints,
    at: Ints,
    count: Ints,
    room: Ints,
    left: Ints,
    leaves: int,
    start: int,
    stop: int,
    begin: int,
    end: int,
) -> int:
    """Give bytes [begin, end) to a range over [start, stop); NO_ROOM if the pool is full."""
    low = start + leaves
    high = stop + leaves
    while low < high:
        # The two nodes of this level that may be part of the range: `low`, and the one before `high`.
        side = 0
        while side < 2:
            node = 0
            if side == 0 and low & 1 == 1:
                node = low
                low += 1
            elif side == 1 and high & 1 == 1:
                high -= 1
                node = high
            if node > 0:
                if add(pool, at, count, room, left, 2 * leaves + node, begin, end) < 0:
                    return -1
                new = 1
                while node > 0 and new == 1:
                    new = add(pool, at, count, room, left, node, begin, end)
                    node = node >> 1
                if new < 0:
                    return -1
            side += 1
        low = low >> 1
        high = high >> 1
    return 0


def look_at(count: Ints, rows: Ints, cursor: Ints, number: int, row: int) -> int:
    """Append a row that has blocks to the first `number` of `rows`; return their new number."""
    if count[row] > 0:
        rows[number] = row
        cursor[number] = 0
        number += 1
    return number


def lowest(
    pool: Ints,
    at: Ints,
    count: Ints,
    rows: Ints,
    cursor: Ints,
    leaves: int,
    start: int,
    stop: int,
    size: int,
) -> int:
    """The lowest offset at which `size` bytes are free during [start, stop)."""
    number = 0
    low = start + leaves
    high = stop + leaves
    left = low >> 1
    right = (high - 1) >> 1
    while low < high:
        if low & 1 == 1:
            number = look_at(count, rows, cursor, number, low)
            low += 1
        if high & 1 == 1:
            high -= 1
            number = look_at(count, rows, cursor, number, high)
        low = low >> 1
        high = high >> 1
    while left != right:
        number = look_at(count, rows, cursor, number, 2 * leaves + left)
        number = look_at(count, rows, cursor, number, 2 * leaves + right)
        left = left >> 1
        right = right >> 1
    while left > 0:
        number = look_at(count, rows, cursor, number, 2 * leaves + left)
        left = left >> 1
    # Move up to the end of any block that overlaps, until none does.
    offset = 0
    moved = 1
    while moved == 1:
        moved = 0
        i = 0
        while i < number:
            base = at[rows[i]]
            last = 2 * count[rows[i]]
            k = cursor[i]
            while k < last and pool[base + k + 1] <= offset:
                k += 2
            while k < last and pool[base + k] < offset + size:
                offset = pool[base + k + 1]
                moved = 1
                k += 2
            cursor[i] = k
            i += 1
    return offset


def stack(
    leaves: int, number: int, order: Ints, r: Ranges, offsets: Ints, pool: Ints, at: Ints, count: Ints,
    room: Ints, left: Ints, rows: Ints, cursor: Ints,
) -> int:  # fmt: skip
    """Fill `offsets` in the given order; return the highest top, or NO_ROOM if the pool is too small."""
    row = 0
    while row < 4 * leaves:
        at[row] = 0
        count[row] = 0
        room[row] = 0
        row += 1
    left[0] = 0
    top = 0
    k = 0
    while k < number:
        i = order[k]
        offset = 0
        if r.size[i] > 0:
            offset = lowest(pool, at, count, rows, cursor, leaves, r.start[i], r.stop[i], r.size[i])
            if (
                take(pool, at, count, room, left, leaves, r.start[i], r.stop[i], offset, offset + r.size[i])
                < 0
            ):
                return -1
        offsets[i] = offset
        if offset + r.size[i] > top:
            top = offset + r.size[i]
        k += 1
    return top


PARTS = (add, take, look_at, lowest, stack)
"""All functions for `compiled`, each before its callers."""
