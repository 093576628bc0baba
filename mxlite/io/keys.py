"""Numbers by which files call their records."""

from __future__ import annotations

from ..core.errors import RangeError

MOST = 2**60


def whole_key(number: int) -> int:
    """`number`; RangeError from MOST on.

    Python hashes whole numbers modulo 2**61 - 1. Who may choose larger ones can have all of them land in one
    place of a dict, which then takes time in the square of its size.
    """
    if abs(number) >= MOST:
        raise RangeError(f"A key is below 2**60, got {number}.")
    return number
