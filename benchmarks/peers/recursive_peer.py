"""What a process answers that trains recursive networks for benchmarks/dynamic.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from peers.recursive_samples import samples

POOL = 256  # samples, through which steps go round and round
RATE = 0.001


class RecursivePeer:
    """A framework's side. `build(net)` returns a function that takes one step and gives the sum of its
    losses.
    """

    def versions(self) -> dict[str, str]:
        """The versions of what it runs."""
        raise NotImplementedError

    def build(self, net: str, batch: int) -> Callable[[Sequence[Any]], float]:
        """See the class."""
        raise NotImplementedError

    def answer(self, do: str, **arguments: Any) -> Any:
        return getattr(self, do)(**arguments)

    def load(self, net: str, batch: int) -> list[float]:
        """The losses of the first two steps, which all peers must agree on."""
        pool = samples(net, max(POOL, batch))
        self._batches = [pool[i : i + batch] for i in range(0, len(pool), batch)]
        self._step = self.build(net, batch)
        self._at = 0
        return [self._next() for _ in range(2)]

    def _next(self) -> float:
        self._at += 1
        return self._step(self._batches[self._at % len(self._batches)])

    def time(self, seconds: float, busy: bool) -> float:
        """Samples in a second of steps; `busy`: of this process's CPU time, whatever else runs."""
        clock = time.process_time if busy else time.perf_counter
        start, count = clock(), 0
        while clock() - start < seconds or count == 0:
            self._next()
            count += len(self._batches[self._at % len(self._batches)])
        return count / (clock() - start)
