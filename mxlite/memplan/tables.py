"""Numbers of tasks and values as arrays, the form that machine code takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np


def ints(numbers: Iterable[int]) -> np.ndarray:
    """The numbers as an array of at least one element, because an empty array has no address."""
    return np.array([*numbers] or [0], np.int64)


def rows(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the rows in their concatenation, with its length at the end; and the concatenation."""
    first = [0, *accumulate(map(len, rows))]
    return ints(first), ints(x for row in rows for x in row)
