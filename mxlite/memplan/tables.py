"""Numbers of tasks and values in arrays, as machine code takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np


def ints(numbers: Iterable[int]) -> np.ndarray:
    """At least one, for an array without any has no address."""
    return np.array([*numbers] or [0], np.int64)


def rows(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Where each row begins, and where the last ends; and all rows in one."""
    first = [0, *accumulate(map(len, rows))]
    return ints(first), ints(x for row in rows for x in row)
