"""Measured cache capacity for one program: data sheets give one that is shared with others.

Arrays of growing size are summed, over and over. As long as the array stays in the cache a byte
costs little; beyond that it costs what memory costs. The capacity lies in between.

Bytes that are touched so quickly are not evicted by others. But a step takes its time, and what others touch
meanwhile evicts its bytes like its own accesses do. So part of the cache is touched once more after pauses of
growing length: when it costs what memory costs, others have touched the rest of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import thread_time

import numpy as np

MIB = 2**20
SIZES = tuple(m * MIB for m in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128))
ROUNDS = 5  # of which the least time counts: others never make a pass faster
PASSES_BYTES = 16 * MIB  # small arrays are passed over several times, for the clock's resolution
PART = 4  # share of the cache that is tested: 1 / PART
RATIO = 2.0  # ratio of successive waits
WAITS = tuple(0.25e-3 * RATIO**n for n in range(8))  # seconds; what outlives the last one is taken to stay
LOOKS = 7  # after each: others vary
AGAIN = 3  # passes before: a cache may fill up only gradually
AWAY = 2  # multiple of the cache's size after which nothing of the part is left in it


def cache_bytes(sizes: tuple[int, ...] = SIZES, seconds_of_pass: Callable[[int], float] | None = None) -> int:
    """Bytes that stay in the cache while others are touched, one of `sizes`. Takes about half a second.

    The largest size whose cost per byte is less than half way from the fastest to the slowest. 0 if all
    take the same within a quarter: then no cache is visible. `seconds_of_pass(size)` measures, unless
    given, the time of a repeated pass over so many bytes.
    """
    measure = seconds_of_pass or _passes(max(sizes))
    least = dict.fromkeys(sizes, float("inf"))
    for _ in range(ROUNDS):
        for size in sizes:
            least[size] = min(least[size], measure(size) / size)
    quick, slow = min(least.values()), max(least.values())
    if slow < 1.25 * quick:
        return 0
    return max(size for size in sizes if least[size] < (quick + slow) / 2)


def others_bytes_per_s(
    cache: int, looks: int = LOOKS, seconds_after: Callable[[float], float] | None = None
) -> float:
    """Bytes of the same cache that others touch in a second; 0 if its content outlives all WAITS.

    `cache` is its capacity in bytes. `seconds_after(wait)` measures, unless given, the time of a pass
    over 1 / PART of it `wait` seconds after the previous pass; infinity: with nothing of it left. 7 `looks`
    at each wait take about half a second.
    """
    if cache < PART:
        return 0.0
    measure = seconds_after or _passes_after(cache)
    times: dict[float, list[float]] = {wait: [] for wait in (0.0, *WAITS, float("inf"))}
    for _ in range(looks):
        for wait, found in times.items():
            found.append(measure(wait))
    quick, slow = median(times.pop(0.0)), median(times.pop(float("inf")))
    if slow <= quick:
        return 0.0
    # Number of waits that it outlives: the sum of the shares left after each, averaged over all looks.
    left = [min(1.0, max(0.0, (slow - s) / (slow - quick))) for found in times.values() for s in found]
    outlived = sum(left) / looks
    if outlived > len(WAITS) - 0.5:
        return 0.0
    return (cache - cache // PART) / (WAITS[0] * RATIO ** (outlived - 0.5))


def _passes_after(cache: int) -> Callable[[float], float]:
    """Seconds of this thread for a pass over a part of the cache, by the time since the previous pass."""
    part, rest = np.ones(cache // PART // 8), np.ones(AWAY * cache // 8)

    def seconds(wait: float) -> float:
        for _ in range(AGAIN):
            np.add(part, 1, out=part)
        if wait == float("inf"):
            np.add(rest, 1, out=rest)
        else:
            end = thread_time() + wait
            while thread_time() < end:
                pass
        start = thread_time()
        np.add(part, 1, out=part)
        return thread_time() - start

    return seconds


def _passes(most: int) -> Callable[[int], float]:
    """Seconds of this thread for a pass over memory: waiting for a core does not count."""
    block = np.ones(most // 8)

    def seconds(size: int) -> float:
        part = block[: size // 8]
        passes = max(1, PASSES_BYTES // size)
        part += 1
        start = thread_time()
        for _ in range(passes):
            part += 1
        return (thread_time() - start) / passes

    return seconds
