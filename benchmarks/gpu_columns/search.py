"""The largest number that fits."""

from __future__ import annotations

from collections.abc import Callable


def bisected(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, to a sixteenth. All below it fit; 0 if 1 does not."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
