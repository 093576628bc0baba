"""What benchmarks/gpu.py measures: networks, columns, one network in all columns, tables."""

from __future__ import annotations

import time
from collections.abc import Callable

HOST_STEPS = 50
"""Of which host time is taken: with thousands under way, who pushes waits for room."""


def pushed(push: Callable[[], object], count: int) -> float:
    """Push so many steps; seconds of the host for one of the first HOST_STEPS."""
    first = min(count, HOST_STEPS)
    start = time.perf_counter()
    for _ in range(first):
        push()
    seconds = (time.perf_counter() - start) / first
    for _ in range(count - first):
        push()
    return seconds
