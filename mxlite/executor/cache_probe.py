"""How much a processor's cache holds for one program, measured: what data sheets say is shared with others.

Numbers are added to arrays of growing size, over and over. As long as the array stays in the cache a byte
costs little; behind that it costs what memory costs. In between lies the size looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

import numpy as np

MIB = 2**20
SIZES = tuple(m * MIB for m in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128))
ROUNDS = 5  # of which the least time counts: nobody else's work makes a pass quicker
PASSES_BYTES = 16 * MIB  # small arrays are passed over several times, so that the clock sees something


def cache_bytes(sizes: tuple[int, ...] = SIZES, seconds_of_pass: Callable[[int], float] | None = None) -> int:
    """Bytes that stay quick to touch while others are touched, one of `sizes`. Takes about half a second.

    The largest size whose bytes take less than half way from the quickest to the slowest ones. 0 where all
    take the same within a quarter: then no cache is to be seen. `seconds_of_pass(size)` measures, unless
    given, how long a pass over so many bytes takes that were passed over before.
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
