"""Compact text for lists of numbers and of names, for a page that carries a hundred thousand of them.

Numbers are written in groups of 7 bits, the lowest first, with the eighth bit set where another group follows
(LEB128, as in DWARF and WebAssembly), then in base64. `web/data.js` reads them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def packed(numbers: Sequence[int] | npt.NDArray[np.int64]) -> str:
    """Text of whole numbers of at least 0."""
    n = np.asarray(numbers, np.uint64)
    if not n.size:
        return ""
    groups = np.ones(n.shape, np.int64)
    for bits in range(7, 64, 7):
        groups += n >= np.uint64(1 << bits)
    stop = np.cumsum(groups)
    out = np.zeros(int(stop[-1]), np.uint8)
    for g in range(int(groups.max())):
        has = groups > g
        more = np.where(groups[has] > g + 1, 128, 0).astype(np.uint8)
        low = (n[has] >> np.uint64(7 * g)) & np.uint64(127)
        out[(stop - groups)[has] + g] = low.astype(np.uint8) | more
    return base64.b64encode(out.tobytes()).decode("ascii")


def signed(numbers: Sequence[int] | npt.NDArray[np.int64]) -> str:
    """Text of whole numbers of either sign: n >= 0 is written as 2 n, n < 0 as -2 n - 1."""
    n = np.asarray(numbers, np.int64)
    return packed(np.where(n >= 0, 2 * n, -2 * n - 1))


def steps_of(numbers: Sequence[int]) -> str:
    """Text of slowly changing numbers: their differences, the first from 0."""
    n = np.asarray(numbers, np.int64)
    return signed(n - np.concatenate(([0], n[:-1])).astype(np.int64))


def shortened(names: Sequence[str]) -> tuple[str, list[str]]:
    """Names as (length of each common prefix with the name before, packed; the rest of each)."""
    shared, rest, before = [], [], ""
    for name in names:
        n = 0
        for a, b in zip(before, name):
            if a != b:
                break
            n += 1
        # JavaScript counts UTF-16 units: a name is never cut where the two counts differ.
        if not name[:n].isascii():
            n = 0
        shared.append(n)
        rest.append(name[n:])
        before = name
    return packed(shared), rest
