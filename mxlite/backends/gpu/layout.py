"""How threads are laid over lines: arrays seen as (outer, length, inner) of which each line along `length` is
folded. All of it follows from shapes, so that sums have the same order on every device.

    inner = 1    a group of threads for a line: 1 to 32 of a warp, or a block where the line is long
    else         threadIdx.x counts neighbouring lines, threadIdx.y shares one
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .device import Grid

MOST = 2**31 - 1  # lines, and elements of a line
COLUMN_THREADS = 256


def stretches(count: int, each: int, most: int) -> list[tuple[int, int]]:
    """(first, how many) of `count` things of `each` elements, so that none has more than `most` elements."""
    step = max(1, most // max(1, each))
    return [(i, min(step, count - i)) for i in range(0, count, step)]


@dataclass(frozen=True)
class Layout:
    """`group`: threads of a line; 0 where they are columns."""

    grid: Grid
    block: Grid
    group: int


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def rows(lines: int, packs: int, held: int, most: int = 1024) -> Layout:
    """For lines of `packs` packs, of which a thread keeps up to `held`; blocks of at most `most` threads."""
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
    """(multiplier, shift) with which `divided` of index.cuh divides by `n` in [1, 2^31)."""
    shift = (n - 1).bit_length()
    return ((2**32 * (2**shift - n)) // n + 1) & 0xFFFFFFFF, shift


class Divisor(ctypes.Structure):
    """The three numbers that a division by `n` takes."""

    _fields_ = (("n", ctypes.c_uint32), ("multiplier", ctypes.c_uint32), ("shift", ctypes.c_uint32))

    def __init__(self, n: int) -> None:
        super().__init__(n, *divisor(n))
