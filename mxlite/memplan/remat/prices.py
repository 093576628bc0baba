"""Shadow prices of a byte at each moment of a small problem, for several budgets.

Between two reads a result is either held, which takes its bytes at all moments in between, or recomputed,
which takes its seconds. The relaxed problem counts only this: neither the inputs that must be recomputed too,
nor their bytes. And budgets are kept only on average (Lagrange): each moment has a price, a result is held
where that costs less than recomputing it, and prices rise where too much is held, and fall where too little
is (M. Held, P. Wolfe, H. P. Crowder 1974, "Validation of subgradient optimization").

Moments are the forward tasks, then the stages of `stages.py`. Seconds are in its integer units.
"""

from __future__ import annotations

import numpy as np

from .stages import Stages

Array = np.ndarray

STEPS = 120  # of which the second half counts
STRIDE = 4.0
DEARER = 1.5  # correction for what the relaxed problem leaves out: recomputing the inputs of a result


class Prices:
    """Prices for `budgets` bytes (budgets,) of the arena."""

    def __init__(self, stages: Stages, budgets: Array) -> None:
        self.stages = stages
        n, count = stages.number, stages.stages
        self.seconds = np.array(stages.seconds, np.int64)
        self.until = self._next_uses()
        # Row of each interval between two reads: task, first moment, the moment after it, bytes.
        rows = []
        for u in range(n):
            reads = [j for j in range(count) if stages.asked[j] >> u & 1] if stages.free >> u & 1 else []
            for first, last in zip([max(stages.last[u], u) - n, *reads], reads):
                if first + 1 < last:
                    rows.append((u, n + first + 1, n + last, stages.size[last, u]))
        task, self.first, self.behind, self.nbytes = np.array(rows, np.int64).reshape(-1, 4).T
        self.whole = self.seconds[task]
        self.free_bytes = budgets[:, None] - self._needed()
        price = self._find()
        self.sums = np.concatenate([np.zeros((len(budgets), 1)), np.cumsum(price, axis=1)], axis=1)

    def _next_uses(self) -> Array:
        """(tasks, stages + 1): the next stage from each on that reads a task's results, or else the results
        of one that reads them.
        """
        stages = self.stages
        count = stages.stages
        until = np.full((stages.number, count + 1), count)
        itself = np.zeros(until.shape, bool)
        for u in reversed(range(stages.number)):
            for j in reversed(range(count)):
                until[u, j] = (
                    j if stages.asked[j] >> u & 1 else until[u, j + 1] if itself[u, j + 1] else count
                )
                itself[u, j] = until[u, j] < count
            for r in stages.readers[u]:
                until[u] = np.where(itself[u], until[u], np.minimum(until[u], until[r]))
        return until

    def _needed(self) -> Array:
        """Lower bound on the bytes at each moment that no choice changes."""
        stages = self.stages
        always = ~stages.free & (1 << stages.number) - 1
        found = []
        for u in range(stages.number):
            nbytes, past = stages.forward_bytes(u)
            found.append(nbytes - stages.saved[u] + int(stages.bytes[0](np.int64(past & always))))
        for j in range(stages.stages):
            nbytes = int(stages.bytes[j](np.int64(stages.asked[j] | always & stages.useful[j])))
            found.append(stages.during[j] - stages.own_saved[j] + nbytes)
        return np.array(found, np.int64)

    def _held(self, sums: Array) -> Array:
        """Cost of holding each interval at these prices."""
        found: Array = (sums[:, self.behind] - sums[:, self.first]) * self.nbytes
        return found

    def _find(self) -> Array:
        """Prices (budgets, moments)."""
        count, moments = self.free_bytes.shape
        price, mean = np.zeros((count, moments)), np.zeros((count, moments))
        if not len(self.nbytes):
            return price
        room = (self.nbytes * (self.behind - self.first)).sum()
        scale = (
            STRIDE * int(self.whole.sum()) / max(1, int(room)) / np.maximum(1, self.free_bytes.max(axis=1))
        )
        sums = np.zeros((count, moments + 1))
        for step in range(STEPS):
            np.cumsum(price, axis=1, out=sums[:, 1:])
            held = np.where(self._held(sums) < self.whole, self.nbytes, 0).T
            used = np.zeros((moments + 1, count), np.int64)
            np.add.at(used, self.first, held)
            np.subtract.at(used, self.behind, held)
            over = np.cumsum(used[:-1], axis=0).T - self.free_bytes
            # Ever smaller steps with a divergent sum; square roots are rounded alike on all machines.
            slower = np.sqrt(3.0 + step)
            slower *= np.sqrt(slower)
            price = np.maximum(0.0, price + (scale / slower)[:, None] * over)
            if 2 * step >= STEPS:
                mean += price
        return mean / (STEPS - STEPS // 2)

    def of(self, j: int) -> Array:
        """Cost, at the beginning of stage j and for each budget, of holding each task's results until their
        next use: (budgets, tasks), in integer units of seconds.
        """
        at = self.stages.number + j
        until = self.until[:, j]
        price = (self.sums[:, self.stages.number + until] - self.sums[:, at, None]) * self.stages.size[j]
        found: Array = np.floor(DEARER * np.where(until < self.stages.stages, price, 0.0)).astype(np.int64)
        return found
