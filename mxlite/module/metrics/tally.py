"""Asynchronous sums of a metric over batches.

On a CPU each batch pushes one operation: the metric's own numpy code.

    main      step 0 | later 0 | step 1 | later 1 | step 2 | (batch 0 is measured) later 2 | ...
    engine       step 0 ......... | measure 0 | step 1 ......... | measure 1 | ...

At most AHEAD batches are pending: their inputs take memory, and a failure should show soon.

On a GPU an operator (`metric_sums.py`) adds to four numbers in device memory, `DeviceSums`. Either the
step itself runs it, or it is called on existing predictions. A request for the value waits, and
fetches those numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core import Context
from ...engine import get_engine, Var
from ...graph import Op
from ...ndarray import NDArray, zeros
from ...ndarray.calls.invoke import invoke
from ...ndarray.calls.plan import call_of
from ...ndarray.gradients.autograd import pause
from ...ops.reduce.metric_sums import SUMS

AHEAD = 2  # batches

Measure = Callable[[np.ndarray, np.ndarray], tuple[float, int]]
"""(sum, count) of one batch from label and prediction."""

Operation = tuple[type[Op], Mapping[str, Any]]
"""An operator of `ops/reduce/metric_sums.py`, and its parameters."""


class DeviceSums:
    """Numbers on one device to which an operator adds: `sums` and `taken`, see `ops/reduce/metric_sums.py`.

    `pushed` and `asked` say of the last batch if it is there, and if it counts.
    """

    def __init__(self, arrays: Callable[[], tuple[NDArray, NDArray] | None]) -> None:
        """`arrays` gives (sums, taken) as long as they exist."""
        self._arrays = arrays
        self._found: tuple[NDArray, NDArray] | None = None  # where the last batches were added
        self._told: bool | None = None  # the last flag written to the device: the batch before is taken
        self._has_news = False  # True if something was added since the last look
        self.pushed = self.asked = False

    @classmethod
    def on(cls, ctx: Context) -> DeviceSums:
        """Sums in arrays of their own."""
        arrays = zeros((SUMS,), ctx, "float64"), zeros((1,), ctx, "float32")
        return cls(lambda: arrays)

    def begin(self) -> None:
        """Push a reset: there is no batch yet."""
        self.pushed = self.asked = self._has_news = False
        self._told = None
        self._found = self._arrays()
        if self._found is not None:
            self._found[0][...] = 0

    def next(self) -> tuple[NDArray, NDArray] | None:
        """(sums, taken) for the next batch, which is pushed next; None if they are not available.

        Without them that batch is not added, and the last added one stays the last.
        """
        found = self._arrays()
        self.pushed = found is not None
        if found is None:
            return None
        if self._told is not self.asked:
            found[1][...] = float(self.asked)
            self._told = self.asked
        self._found, self.asked = found, False
        return found

    def ask(self) -> bool:
        """Make the last batch count; False if it is not there, or counts already."""
        if not self.pushed:
            return False
        self.pushed, self.asked, self._has_news = False, True, True
        return True

    def take(self) -> tuple[float, int]:
        """The sums since the last call. Waits. Raises OperatorError."""
        found = self._found
        if found is None or not self._has_news:
            return 0, 0
        total, count, last, more = found[0].asnumpy()
        if self.asked:
            total, count = total + last, count + more
        self.drop()
        return float(total), int(count)

    def drop(self) -> None:
        """Push a reset of what counts."""
        found = self._found
        if found is not None and self._has_news:
            self._has_news = False
            # A batch that is there, but does not count yet, may still be asked for.
            (found[0][:2] if self.pushed else found[0])[...] = 0


class _Sums:
    """Sums since the last look."""

    def __init__(self) -> None:
        self.var = Var("metric")
        self.turns = [Var(f"metric of batch {i}") for i in range(AHEAD)]
        self.pushed = 0
        self.total: float = 0
        self.count = 0
        self.on_gpu: dict[Context, DeviceSums] = {}


class Tally:
    """A sum and a count to which batches are added asynchronously.

    `in_steps` are numbers that a module's training steps add to by themselves, for each pair of label and
    prediction.
    """

    def __init__(self) -> None:
        self._sums = _Sums()
        self.in_steps: Sequence[DeviceSums] = ()

    def ask(self) -> bool:
        """True if the last batch was added by its own step; then it counts now."""
        if not self.in_steps or not all(s.pushed for s in self.in_steps):
            return False
        for s in self.in_steps:
            s.ask()
        return True

    def add(self, measure: Measure, label: NDArray, pred: NDArray) -> None:
        """Push the measurement of a batch that lies in host memory."""
        sums = self._sums

        def run() -> None:
            with np.errstate(all="ignore"):
                total, count = measure(label.storage, pred.storage)
            sums.total += total
            sums.count += count

        turn = sums.turns[sums.pushed % AHEAD]
        get_engine().wait_for(turn)
        # Its own Var is read, too: a batch's failure persists even if the next one succeeds.
        reads, writes = (label.var, pred.var, sums.var), (sums.var, turn)
        get_engine().push(run, reads, writes, name="metric")
        sums.pushed += 1

    def add_on_gpu(self, operation: Operation, arrays: Sequence[NDArray]) -> None:
        """Push the measurement of a batch that lies on one GPU."""
        ctx = arrays[0].context
        numbers = self._sums.on_gpu.get(ctx)
        if numbers is None:
            numbers = self._sums.on_gpu[ctx] = DeviceSums.on(ctx)
        found = numbers.next()
        assert found is not None
        with pause(train_mode=False):
            invoke(call_of(*operation), [*found, *arrays])
        numbers.ask()

    def take(self) -> tuple[float, int]:
        """The sums since the last call. Waits. Raises OperatorError."""
        total, count = 0.0, 0
        for there in self.in_steps:
            more, n = there.take()
            total, count = total + more, count + n
        sums = self._sums
        if sums.pushed or sums.on_gpu:
            self._sums = _Sums()
            get_engine().wait_for(sums.var)
            total, count = total + sums.total, count + sums.count
        for numbers in sums.on_gpu.values():
            more, n = numbers.take()
            total, count = total + more, count + n
        return total, count

    def drop(self) -> None:
        """Reset sums and failures."""
        self._sums = _Sums()
        for there in self.in_steps:
            there.drop()


def is_there(array: Any, kind: str) -> bool:
    """True if `array` is an NDArray on a device of that kind without a known failure."""
    return isinstance(array, NDArray) and array.context.device_type == kind and array.var.failure is None
