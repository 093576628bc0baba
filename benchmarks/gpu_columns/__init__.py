"""Parts of benchmarks/gpu.py: networks, columns, measurement of one network in all columns, tables."""

from __future__ import annotations

import time
from collections.abc import Callable

HOST_STEPS = 50
"""Steps over which host time is measured: with thousands queued, pushing blocks until there is room."""


def pushed(push: Callable[[], object], count: int) -> float:
    """Push `count` steps; returns host seconds per step over the first HOST_STEPS."""
    first = min(count, HOST_STEPS)
    start = time.perf_counter()
    for _ in range(first):
        push()
    seconds = (time.perf_counter() - start) / first
    for _ in range(count - first):
        push()
    return seconds
