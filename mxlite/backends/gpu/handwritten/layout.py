"""Thread layout of reductions over arrays seen as (outer, length, inner), where each row along `length` is
reduced. All of it follows from shapes, so that sums have the same order on every device.

    inner = 1    a group of threads for a row: 1 to 32 of a warp, or a block where the row is long
    else         threadIdx.x counts neighbouring rows, threadIdx.y shares one
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ....graph.ir import Shape
from ..runtime.device import Grid

MOST = 2**31 - 1  # rows, and elements of a row
COLUMN_THREADS = 256


def collapsed(shape: Shape, inputs: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """(lengths of the fewest axes, strides of each input along them in elements, 0 where it is broadcast)."""
    rank = len(shape)
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in inputs]
    lengths: list[int] = []
    there: list[tuple[bool, ...]] = []  # for each remaining axis: which inputs have it
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        has = tuple(s[axis] == n for s in aligned)
        if there and there[-1] == has:
            lengths[-1] *= n
        else:
            lengths.append(n)
            there.append(has)
    if not lengths:
        lengths, there = [1], [(False,) * len(aligned)]
    strides = []
    for i in range(len(aligned)):
        step, own = 1, [0] * len(lengths)
        for axis in range(len(lengths) - 1, -1, -1):
            if there[axis][i]:
                own[axis], step = step, step * lengths[axis]
        strides.append(tuple(own))
    return tuple(lengths), tuple(strides)


def stretches(count: int, each: int, most: int) -> list[tuple[int, int]]:
    """(first, number) of segments of `count` items of `each` elements, with at most `most` elements each."""
    step = max(1, most // max(1, each))
    return [(i, min(step, count - i)) for i in range(0, count, step)]


@dataclass(frozen=True)
class Layout:
    """Grid and block of a reduction. `group`: threads of a row; 0 if they are columns."""

    grid: Grid
    block: Grid
    group: int


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def rows(lines: int, packs: int, held: int, most: int = 1024) -> Layout:
    """Layout for rows of `packs` packs, with up to `held` for a thread; blocks of at most `most` threads."""
    if packs <= 32 * held:
        group, threads = min(32, power_of_two(-(-packs // held))), 128
    else:
        threads = min(most, -(-packs // (32 * held)) * 32)
        group = threads
    return Layout((-(-lines // (threads // group)), 1, 1), (threads, 1, 1), group)


def columns(lines: int, length: int) -> Layout:
    x = min(32, power_of_two(lines))
    y = min(COLUMN_THREADS // x, power_of_two(max(1, length // 4)))
    return Layout((-(-lines // x), 1, 1), (x, y, 1), 0)


def divisor(n: int) -> tuple[int, int]:
    """(multiplier, shift) with which `split_norm_statistics` of index.cuh divides by `n` in [1, 2^31)."""
    shift = (n - 1).bit_length()
    return ((2**32 * (2**shift - n)) // n + 1) & 0xFFFFFFFF, shift


class Divisor(ctypes.Structure):
    """Constants for a division by `n`."""

    _fields_ = (("n", ctypes.c_uint32), ("multiplier", ctypes.c_uint32), ("shift", ctypes.c_uint32))

    def __init__(self, n: int) -> None:
        super().__init__(n, *divisor(n))
