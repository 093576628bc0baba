"""What changes leave above an allowance, for many pairs of rows.

Where llvmlite is installed the loops of this file are machine code, otherwise numpy does the same. All
numbers are whole, so both give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..compiled import compiled, Ints

Array = np.ndarray


def sums_above(
    rows: int, columns: int, width: int, excess: Ints, change: Ints, enough: int, above: Ints
) -> int:
    """Fill above[rows, columns]: of each row of `excess` with each of `change` added, what is more than 0,
    summed up; or, of what is more than `enough`, a part of it.
    """
    i = 0
    while i < rows:
        j = 0
        while j < columns:
            total = 0
            k = 0
            while k < width and total <= enough:
                # In parts, so that a sum that is large enough ends early.
                end = k + 16
                if end > width:
                    end = width
                while k < end:
                    both = excess[i * width + k] + change[j * width + k]
                    if both > 0:
                        total += both
                    k += 1
            above[i * columns + j] = total
            j += 1
        i += 1
    return 0


@cache
def machine_code() -> Callable[..., int] | None:
    """`sums_above`, compiled once; None without llvmlite."""
    return compiled([sums_above])


def above(excess: Array, change: Array) -> Array:
    """(rows, changes): what is left above 0 when a change is added to a row, summed over all places."""
    return _sums(excess, change, 1 << 62)


def fits(excess: Array, change: Array) -> Array:
    """(rows, changes): whether nothing is left above 0."""
    return np.asarray(_sums(excess, change, 0) == 0)


def _sums(excess: Array, change: Array, enough: int) -> Array:
    call = machine_code()
    if call is None:
        return np.asarray(np.maximum(excess[:, None] + change, 0).sum(axis=2))
    found = np.empty((len(excess), len(change)), np.int64)
    call(*found.shape, excess.shape[1], *map(np.ascontiguousarray, (excess, change)), enough, found)
    return found
