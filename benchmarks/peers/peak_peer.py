"""Measures this machine's peak rates: a large matrix product and a large copy, both on all cores."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve


def gemm(sizes: list[int], count: int) -> float:
    """Flops per second of the fastest float32 product of n by n matrices with numpy's BLAS."""
    best = 0.0
    rng = np.random.default_rng(0)
    for n in sizes:
        a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        out = np.empty((n, n), np.float32)
        np.matmul(a, b, out=out)
        for _ in range(count):
            start = perf_counter()
            np.matmul(a, b, out=out)
            best = max(best, 2 * n**3 / (perf_counter() - start))
    return best


def copy(nbytes: int, threads: int, count: int) -> float:
    """Bytes per second, read and written, of a copy of `nbytes` shared by `threads` threads."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(count + 1):
            start = perf_counter()
            list(pool.map(lambda p: np.copyto(*p), parts))
            best = max(best, 2 * nbytes / (perf_counter() - start))
    return best


def answer(do: str, threads: int, quick: bool) -> dict[str, float]:
    return {
        "flops": gemm([1024] if quick else [1024, 1536, 2048], 3 if quick else 8),
        "bandwidth": copy(1 << 28, threads, 3 if quick else 8),
    }


serve(answer)
