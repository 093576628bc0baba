"""The largest number that fits."""

from __future__ import annotations

from collections.abc import Callable

PART = 16  # the largest number is found to one in so many


def bisected(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, to a sixteenth. All below it fit; 0 if 1 does not."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > max(1, low // PART):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def downwards(fits: Callable[[int], bool], first: int) -> int:
    """The first number that fits of `first` and those below it by a sixteenth each; 0 if none does."""
    number = first
    while number and not fits(number):
        number = below(number)
    return number


def below(number: int) -> int:
    """A sixteenth less."""
    return number - max(1, number // PART)
