"""IntervalSampler: every n-th sample."""

from __future__ import annotations

from collections.abc import Iterator

from ....core.errors import RangeError
from ....core.wanted import whole
from ...data.sampler import Sampler


class IntervalSampler(Sampler):
    """0, interval, 2 * interval, ... below `length`; with `rollover` then 1, 1 + interval, ... and so on.

    A batch of size length / interval holds samples that lie far apart, and the next batch those after them:
    a recurrent network keeps its state from one to the next.
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        self._length = whole("IntervalSampler: length", length, 0)
        self._interval = whole("IntervalSampler: interval", interval, 1)
        if interval > length:
            raise RangeError(f"IntervalSampler: interval must be at most length {length}, got {interval}.")
        self._rollover = rollover

    def __iter__(self) -> Iterator[int]:
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self) -> int:
        return self._length if self._rollover else -(-self._length // self._interval)
