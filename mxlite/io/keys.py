"""Keys of records: whole numbers from files."""

from __future__ import annotations

from ..core.errors import RangeError

MOST = 2**60


def whole_key(number: int) -> int:
    """`number`; RangeError from MOST on.

    Python hashes whole numbers modulo 2**61 - 1. An attacker who may choose larger ones can have all of them
    collide in a dict, which then takes time in the square of its size.
    """
    if abs(number) >= MOST:
        raise RangeError(f"A key is below 2**60, got {number}.")
    return number
