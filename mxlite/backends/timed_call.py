"""Timing of one kernel call by itself: arrays of arbitrary numbers, seconds out of the cache and in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import median
from threading import Thread
from typing import Any

import numpy as np

from ..core.dtype import is_floating
from .base import Backend

AGAIN = 10  # times at most in the cache, and
LEAST_AGAIN = 4  # times where they take CALL_S together
CALL_S = 0.01
PATTERN = 8191  # numbers, repeated to fill an array; a prime, so that no row is like another


def cold_and_warm(
    backend: Backend, threads: int, run: Callable[[], None], flush: Callable[[], None]
) -> tuple[float, float]:
    """Seconds out of the cache and in it, after a first run; those in it are the median of the later half.

    `threads` are awake when a run begins; `flush` empties the cache.
    """

    def timed() -> float:
        backend.rouse(threads)
        return backend.seconds_of(run)

    run()
    flush()
    cold = timed()
    warm: list[float] = []
    while len(warm) < LEAST_AGAIN or (len(warm) < AGAIN and sum(warm) < CALL_S):
        warm.append(timed())
    return cold, median(warm[len(warm) // 2 :])


class Flush:
    """Evicts the content of the cache by writing `nbytes`, on `threads` cores: each may have its own."""

    def __init__(self, nbytes: int, threads: int) -> None:
        self._parts = np.array_split(np.ones(nbytes // 8), threads)

    def __call__(self) -> None:
        threads = [Thread(target=self._write, args=(part,)) for part in self._parts[1:]]
        for thread in threads:
            thread.start()
        self._write(self._parts[0])
        for thread in threads:
            thread.join()

    @staticmethod
    def _write(part: np.ndarray) -> None:
        np.add(part, 1, out=part)


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
