"""The peak of this machine, measured by a matrix product and a copy, once in a process."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np

from .. import ndarray as nd

SIDE = 1024
COPIED = 64 * 2**20
ROUNDS = 5


@functools.cache
def flops_per_s(dtype: str, threads: int) -> float:
    """Rate of a product of square matrices by FullyConnected's kernel; the best of a few.

    `threads` is the number that the kernel uses now, a parameter so that another number is measured anew.
    """
    side = SIDE if threads else 0
    data = nd.ones((side, side), dtype=dtype)
    out = nd.empty((side, side), dtype=dtype)
    best = float("inf")
    for _ in range(ROUNDS + 1):
        start = perf_counter()
        nd.FullyConnected(data, data, num_hidden=side, no_bias=True, out=out)
        out.wait_to_read()
        best = min(best, perf_counter() - start)
    return 2.0 * side**3 / best


@functools.cache
def bytes_per_s(threads: int) -> float:
    """Bytes read and written by a copy of 64 MiB, cut among `threads` threads; the best of a few."""
    source, target = np.ones(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    pieces = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS + 1):
            start = perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), pieces))
            best = min(best, perf_counter() - start)
    return 2.0 * COPIED / best
