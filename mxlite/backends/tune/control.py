"""Control of measurements: outliers, time limits, and how many run at once.

After DOPpler (Borowiec et al., "DOPpler: Parallel Measurement Infrastructure for Auto-Tuning Deep Learning
Tensor Programs", TPDS 2023). We time kernels on the device and not from outside, and its controller is here
one rule: what a repetition alone differs by decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

LEAST_S, MOST_S = 2.0, 20.0  # of one measurement
TIMES = 4.0  # median measurements after which one is given up
DRIFT = 0.05  # between a measurement beside others and one alone, above which fewer run at once
REPEATED = 5  # one measurement in so many is repeated alone
FAR = 3.0  # of double MAD: an outlier


class Patience:
    """How long a measurement may take: a few times what others of the task took."""

    def __init__(self) -> None:
        self._took: list[float] = []

    def add(self, seconds: float) -> None:
        self._took.append(seconds)

    @property
    def limit_s(self) -> float:
        return min(MOST_S, max(LEAST_S, TIMES * median(self._took))) if self._took else MOST_S


class Degree:
    """How many measurements run at once: between 1 and `most`."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.now = self.most

    def learn(self, drifts: Sequence[float]) -> None:
        """`drifts`: relative differences of measurements beside others from those alone."""
        if not drifts:
            return
        if median(drifts) > DRIFT:
            self.now = max(1, self.now - max(1, self.now // 4))
        else:
            self.now = min(self.most, self.now + 1)


def double_mad(values: Sequence[float]) -> list[float]:
    """How far each value is from the median, in median absolute deviations of its own side: times have a long
    tail on one side. 0 where a side has none.
    """
    if not values:
        return []
    middle = median(values)
    below = median([middle - v for v in values if v <= middle])
    above = median([v - middle for v in values if v >= middle])

    def far(v: float) -> float:
        scale = below if v < middle else above
        return abs(v - middle) / scale if scale else 0.0

    return [far(v) for v in values]


def to_repeat(seconds: Sequence[float]) -> list[int]:
    """Which measurements of a batch are repeated alone: one in five, the fastest first, then outliers."""
    count = -(-len(seconds) // REPEATED)
    far = double_mad(seconds)
    fastest = sorted(range(len(seconds)), key=lambda i: seconds[i])[:1]
    others = sorted(
        (i for i in range(len(seconds)) if i not in fastest and far[i] > FAR), key=lambda i: -far[i]
    )
    rest = sorted(
        (i for i in range(len(seconds)) if i not in fastest and i not in others), key=lambda i: seconds[i]
    )
    return [*fastest, *others, *rest][:count]
