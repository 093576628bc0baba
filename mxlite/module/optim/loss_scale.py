"""Loss scaling: float16 gradients are kept within its range by a factor, found by trial.

P. Micikevicius et al. 2018, "Mixed precision training". A factor that is too large shows: some gradient
overflows to inf or nan. Then the update is skipped and the factor halved; after WINDOW good steps it is
doubled.

If the update is part of the step, the step decides by itself (see scaled_update.py), and nothing waits
for that decision within it. Values that the host derives from the number of updates are corrected when it
learns that some were skipped: before the next step if rates depend on that number, else on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import BindError
from ...executor import Executor
from ...executor.request.amp import amp_dtype, checked_scale, FIRST, LARGEST, LossScale as Asked, WINDOW
from ...ndarray import NDArray


class LossScale:
    """The loss scale and its adjustment: `value`, and `good_steps` since the last change."""

    def __init__(self, value: float, dynamic: bool) -> None:
        self.value = value
        self.dynamic = dynamic
        self.good_steps = 0
        self._pending: _Pending | None = None
        self._known: tuple[NDArray, int] | None = None  # a history, and the updates skipped in it so far

    @classmethod
    def of(cls, scale: Any, amp: Any) -> LossScale | None:
        """Loss scale from 'dynamic', a number or None. Raises BindError."""
        if scale == "dynamic":
            return cls(float(checked_scale(FIRST, amp_dtype(amp)) or 0), True)
        if isinstance(scale, str):
            raise BindError(f"loss_scale must be 'dynamic', a number above 0, or None, got {scale!r}.")
        value = checked_scale(scale, amp_dtype(amp))
        return None if value is None else cls(value, False)

    def learn(self, finite: bool) -> None:
        """Adjust after a step whose gradients were finite, or were not."""
        self.good_steps = self.good_steps + 1 if finite else 0
        if not self.dynamic:
            return
        if not finite:
            self.value = max(1.0, self.value / 2)
        elif self.good_steps >= WINDOW:
            self.value, self.good_steps = min(LARGEST, 2 * self.value), 0

    # -- decision inside the step

    def asked(self) -> Asked:
        """Request for binding an executor."""
        return Asked(self.value, self.dynamic, WINDOW, LARGEST)

    def give(self, executor: Executor) -> None:
        """Write value and good steps into an executor that decides by itself."""
        executor.loss_scale = self.value
        executor.set_scale_history(self.good_steps)

    def expect(self, executor: Executor, progress: Callable[[], Any]) -> None:
        """Note that a step of `executor` is to be counted; `progress()` is the optimizer's before it."""
        if self._pending is not None and self._pending.executor.history is executor.history:
            self._pending.steps += 1
            return
        assert self._pending is None, "settle before another executor's step"
        assert executor.history is not None
        if self._known is None or self._known[0] is not executor.history:
            self._learn(executor)
        assert self._known is not None
        self._pending = _Pending(executor, progress(), self._known[1])

    def has_other(self, executor: Executor) -> bool:
        """True if another executor, with a history of its own, made steps whose outcome is unknown."""
        return self._pending is not None and self._pending.executor.history is not executor.history

    def settle(self, executor: Executor | None) -> Settled | None:
        """Learn the decisions of the last steps, and wait for them, so that `executor` continues from there;
        None for one that is still to be bound.

        Returns None if all made their update.
        """
        pending, self._pending = self._pending, None
        last = executor if pending is None else pending.executor
        if last is None:
            return None
        left_out = self._learn(last)
        if executor is not None and last.history is not executor.history:
            if executor.loss_scale != self.value:
                self.give(executor)
        if pending is None or left_out == pending.left_out:
            return None
        return Settled(last, pending.progress, pending.steps - (left_out - pending.left_out))

    def _learn(self, executor: Executor) -> int:
        """Fetch value and good steps; returns the number of skipped updates."""
        history = executor.scale_history
        assert history is not None and executor.history is not None
        self.value, self.good_steps = executor.loss_scale or self.value, history[0]
        self._known = executor.history, history[2]
        return history[2]


@dataclass(frozen=True)
class Settled:
    """Steps of `executor` some of which skipped their update: the optimizer's progress before them, and the
    number of updates `made`."""

    executor: Executor
    progress: Any
    made: int


@dataclass
class _Pending:
    """Steps whose outcome is not known yet: progress and skipped updates before the first of them."""

    executor: Executor
    progress: Any
    left_out: int
    steps: int = 1


def are_finite(gradients: Iterable[NDArray]) -> bool:
    """True if no number is inf or nan. Waits for the gradients; O(elements), nothing large is allocated."""
    for g in gradients:
        g.wait_to_read()
        with np.errstate(invalid="ignore"):
            total = np.add.reduce(g.plain().storage, axis=None, dtype=np.float64)
        if not np.isfinite(total):
            return False
    return True
