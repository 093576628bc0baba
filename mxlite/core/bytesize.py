"""Numbers of bytes, read from and written for people."""

from __future__ import annotations

import operator
import re
from contextlib import suppress

from .errors import BudgetError
from .wanted import found

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
LONGEST = 100  # characters
UNBOUNDED = 2**62 - 1
"""A budget that everything fits, and the largest: beyond so many bytes offsets no longer fit in 64 bits."""
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")


def parse_bytes(size: object, what: str = "memory budget") -> int:
    """Bytes from an int or text such as "64MiB" (2**20), "1.5GB" (10**9), "4096". Fractions round down.

    `what` is what errors call it. Raises BudgetError for anything that is not a positive, finite number of
    bytes.
    """
    if not isinstance(size, (int, str)) and hasattr(size, "__index__"):
        with suppress(TypeError):  # an array of several numbers
            size = operator.index(size)  # a numpy integer
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise BudgetError(f"The {what} is an int in bytes or text such as '64MiB' or '1.5GB'; got {size!r}.")
    if isinstance(size, int):
        return _checked(size, size, what)
    match = _FORM.fullmatch(size) if len(size) <= LONGEST else None
    if match is None or match[2].lower() not in _UNITS:
        raise BudgetError(
            f"Cannot read the {what} {size[:LONGEST]!r}: write a number and a unit out of B, kB, MB, GB, TB "
            f"(powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024), for example '64MiB'."
        )
    unit = _UNITS[match[2].lower()]
    if "." in match[1]:
        whole, part = match[1].split(".")
        nbytes = int(whole or 0) * unit + int(part) * unit // int(10 ** len(part))
    else:
        nbytes = int(match[1]) * unit
    return _checked(nbytes, size, what)


def _checked(nbytes: int, size: object, what: str) -> int:
    if nbytes <= 0:
        raise BudgetError(f"The {what} must be at least 1 byte, got {found(size)}.")
    if nbytes > UNBOUNDED:
        raise BudgetError(f"The {what} must be below 2**62 bytes, which is 4 EiB, got {found(size)}.")
    return nbytes


def format_bytes(nbytes: int) -> str:
    """`33554432` -> `"32.00 MiB"`; exact below 1 KiB."""
    if abs(nbytes) < 1024:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if abs(value) < 1024:
            return f"{value:.2f} {unit}"
    return f"{value / 1024:.2f} TiB"
