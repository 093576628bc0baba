"""Search for the largest number that fits."""

from __future__ import annotations

from collections.abc import Callable

PART = 16  # resolution of the search: the number is exact to 1/PART


def bisected(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, to 1/16, if `fits` is monotone; 0 if 1 does not fit."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > max(1, low // PART):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def downwards(fits: Callable[[int], bool], first: int) -> int:
    """The first number that fits, starting from `first` in decrements of 1/16; 0 if none does."""
    number = first
    while number and not fits(number):
        number = below(number)
    return number


def below(number: int) -> int:
    """`number` less a sixteenth."""
    return number - max(1, number // PART)
