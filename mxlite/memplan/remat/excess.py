"""Excess over an allowance that changes leave, for many pairs of rows.

With llvmlite the loops of this file are machine code, otherwise numpy computes the same. All
numbers are integers, so both give the same results.
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
    """Fill above[rows, columns]: the sum of the positive parts of a row of `excess` plus a row of `change`;
    for sums above `enough`, only a part of the sum.
    """
    i = 0
    while i < rows:
        j = 0
        while j < columns:
            total = 0
            k = 0
            while k < width and total <= enough:
                # In parts, so that a sum that is large enough stops early.
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
    """`sums_above` as machine code, compiled once; None without llvmlite."""
    return compiled([sums_above])


def above(excess: Array, change: Array) -> Array:
    """(rows, changes): the sum of positive parts when a change is added to a row, over all places."""
    return _sums(excess, change, 1 << 62)


def fits(excess: Array, change: Array) -> Array:
    """(rows, changes): True where no positive part is left."""
    return np.asarray(_sums(excess, change, 0) == 0)


def _sums(excess: Array, change: Array, enough: int) -> Array:
    call = machine_code()
    if call is None:
        return np.asarray(np.maximum(excess[:, None] + change, 0).sum(axis=2))
    found = np.empty((len(excess), len(change)), np.int64)
    call(*found.shape, excess.shape[1], *map(np.ascontiguousarray, (excess, change)), enough, found)
    return found
