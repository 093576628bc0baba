"""Sizes: the numbers of rows for which kernels are made.

Up to 16 each number is one, above it 8 in an octave: 18, 20, ... 32, 36, ...: no more than an eighth of the
rows is computed in vain.
"""

from __future__ import annotations


def padded(count: int) -> int:
    """The size for so many rows."""
    step = 1 << max(0, (count - 1).bit_length() - 4)
    return -(-count // step) * step


def sizes(most: int) -> list[int]:
    """All sizes up to `most`, which is one."""
    found = [1]
    while found[-1] < most:
        found.append(padded(found[-1] + 1))
    return found
