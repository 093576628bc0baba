"""The state behind every random number: a seed, and a count of draws.

An operation takes a step number when it is *pushed*, on the caller's thread, and its numbers depend on
(seed, step) alone. So results do not depend on which worker draws first.
"""

from __future__ import annotations

import threading

import numpy as np

from ..ops.philox import RandomStream


class Generator:
    """A seed and a counter; each `next_step` is unique. May be used from any thread."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start again from `seed` (taken modulo 2**64), at step 0."""
        with self._lock:
            self._seed = int(seed) % 2**64
            self._step = 0

    def next_step(self) -> tuple[int, int]:
        """(seed, step) for one operation, or for one run of a bound program."""
        with self._lock:
            step = self._step
            self._step += 1
            return self._seed, step

    def get_state(self) -> tuple[int, int]:
        """(seed, next step): what a checkpoint keeps."""
        with self._lock:
            return self._seed, self._step

    def set_state(self, state: tuple[int, int]) -> None:
        """Continue where `get_state` was called."""
        seed, step = state
        with self._lock:
            self._seed, self._step = int(seed) % 2**64, int(step)


GENERATOR = Generator()
"""The one that `mx.random.seed` seeds."""


def next_stream() -> RandomStream:
    """The numbers of the next step, for an operation that is called by itself."""
    return RandomStream(np.array(GENERATOR.next_step(), "uint64"), 0)
