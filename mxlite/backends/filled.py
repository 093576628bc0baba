"""Arrays of arbitrary numbers, for kernels that are run only to be timed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..core.dtype import is_floating
from .base import Backend

PATTERN = 8191  # numbers, repeated to fill an array; a prime, so that no row is like another


def fill(backend: Backend, array: Any) -> None:
    """Fill with numbers in [0.5, 1.5) for floats, else 0: no denormals, and valid indices.

    Arithmetic on denormal numbers is many times slower, and garbage is full of them.
    """
    if not is_floating(array.dtype):
        backend.fill(array, 0)
        return
    pattern = _pattern(array.dtype)
    if backend.is_remote:
        backend.from_host(array, np.resize(pattern, array.shape))
        return
    flat = array.reshape(-1)  # thousands of arrays before each turn: no temporary is made for each
    whole = len(flat) // PATTERN * PATTERN
    flat[:whole].reshape(-1, PATTERN)[:] = pattern
    flat[whole:] = pattern[: len(flat) - whole]


@cache
def _pattern(dtype: Any) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 1.5, PATTERN).astype(dtype)
