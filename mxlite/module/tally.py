"""Sums over batches that nobody waits for: a metric's, gathered by operations of the engine.

Each batch pushes one operation, which measures predictions where they are as soon as they are there. On a CPU
it is the metric's own numpy code, on a GPU kernels that add to two numbers in device memory. Whoever asks for
the value waits, and fetches those.

    main      step 0 | later 0 | step 1 | later 1 | step 2 | (batch 0 is measured) later 2 | ...
    engine       step 0 ......... | measure 0 | step 1 ......... | measure 1 | ...

At most AHEAD batches are under way: what is read for them takes memory, and a failure is to show soon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import backend_of
from ..core import Context
from ..engine import get_engine, Var
from ..ndarray import NDArray

AHEAD = 2  # batches

Measure = Callable[[np.ndarray, np.ndarray], tuple[float, int]]
"""(sum, count) of one batch from label and prediction."""

OnGPU = Callable[[Any, Any, Any], Callable[[], None]]
"""The kernels that add to the array of two numbers given first, from label and prediction."""


class _Sums:
    """What was added since the last look."""

    def __init__(self) -> None:
        self.var = Var("metric")
        self.turns = [Var(f"metric of batch {i}") for i in range(AHEAD)]
        self.pushed = 0
        self.total: float = 0
        self.count = 0
        self.on_gpu: dict[Context, Any] = {}


class Tally:
    """A sum and a count to which batches are added by and by."""

    def __init__(self) -> None:
        self._sums = _Sums()

    def add(self, measure: Measure, label: NDArray, pred: NDArray) -> None:
        """Push: measure a batch that lies in host memory."""
        sums = self._sums

        def run() -> None:
            with np.errstate(all="ignore"):
                total, count = measure(label.storage, pred.storage)
            sums.total += total
            sums.count += count

        self._push(run, label, pred, "cpu")

    def add_on_gpu(self, kernels: OnGPU, label: NDArray, pred: NDArray) -> None:
        """Push: measure a batch that lies on one GPU."""
        backend, sums = backend_of(pred.context), self._sums
        numbers = sums.on_gpu.get(pred.context)
        is_new = numbers is None
        if is_new:
            numbers = sums.on_gpu[pred.context] = backend.array((2,), np.dtype(np.float64))

        def run() -> None:
            if is_new:
                backend.fill(numbers, 0)
            kernels(numbers, label.storage, pred.storage)()

        self._push(backend.issue(run, (label.var, pred.var, sums.var)), label, pred, backend.lane)

    def _push(self, run: Callable[[], object], label: NDArray, pred: NDArray, lane: str) -> None:
        sums, push = self._sums, get_engine().push
        turn = sums.turns[sums.pushed % AHEAD]
        get_engine().wait_for(turn)
        # Its own Var is read, too: a batch that failed is not forgotten when the next one does not.
        push(run, (label.var, pred.var, sums.var), (sums.var, turn), name="metric", device=lane)
        sums.pushed += 1

    def take(self) -> tuple[float, int]:
        """What was added since this was asked last. Waits. Raises OperatorError."""
        sums = self._sums
        if not sums.pushed:
            return 0, 0
        self._sums = _Sums()
        get_engine().wait_for(sums.var)
        total, count = sums.total, sums.count
        for ctx, numbers in sums.on_gpu.items():
            found = backend_of(ctx).to_host(numbers, sums.var)
            total, count = total + float(found[0]), count + int(found[1])
        return total, count

    def drop(self) -> None:
        """Forget what was added, and failures."""
        self._sums = _Sums()


def is_there(array: Any, kind: str) -> bool:
    """Whether `array` is an NDArray on a device of that kind, and no failure of it is known."""
    return isinstance(array, NDArray) and array.context.device_type == kind and array.var.failure is None
