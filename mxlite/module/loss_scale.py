"""Loss scaling: float16 gradients are kept within its range by a factor, found by trial.

P. Micikevicius et al. 2018, "Mixed precision training". A factor that is too large shows: some gradient
overflows to inf or nan. Then the update is skipped and the factor halved; after WINDOW good steps it is
doubled.

Where the update is part of the step, the step decides by itself (see ops/scaled_update.py), and nobody waits
for that decision within it. What the host reckons from the number of updates, rates and schedules, is taken
back when it learns, before the next step, that one was left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import BindError
from ..executor import Executor
from ..executor.amp import amp_dtype, checked_scale, FIRST, LARGEST, LossScale as Asked, WINDOW
from ..ndarray import NDArray


class LossScale:
    """The factor and how it moves: `value`, and `good_steps` since it moved last."""

    def __init__(self, value: float, dynamic: bool) -> None:
        self.value = value
        self.dynamic = dynamic
        self.good_steps = 0
        self._pending: tuple[Executor, Any, int] | None = (
            None  # the last step, whose outcome is not known yet
        )

    @classmethod
    def of(cls, scale: Any, amp: Any) -> LossScale | None:
        """What a user asks for by 'dynamic', a number or None. Raises BindError."""
        if scale == "dynamic":
            return cls(float(checked_scale(FIRST, amp_dtype(amp)) or 0), True)
        if isinstance(scale, str):
            raise BindError(f"loss_scale must be 'dynamic', a number above 0, or None, got {scale!r}.")
        value = checked_scale(scale, amp_dtype(amp))
        return None if value is None else cls(value, False)

    def learn(self, finite: bool) -> None:
        """Move after a step whose gradients were finite, or were not."""
        self.good_steps = self.good_steps + 1 if finite else 0
        if not self.dynamic:
            return
        if not finite:
            self.value = max(1.0, self.value / 2)
        elif self.good_steps >= WINDOW:
            self.value, self.good_steps = min(LARGEST, 2 * self.value), 0

    # -- where the step decides

    def asked(self) -> Asked:
        """What an executor is to be bound with."""
        return Asked(self.value, self.dynamic, WINDOW, LARGEST)

    def give(self, executor: Executor) -> None:
        """Write value and good steps into an executor that decides by itself."""
        executor.loss_scale = self.value
        executor.set_scale_history(self.good_steps)

    def expect(self, executor: Executor, progress: Any) -> None:
        """A step of `executor` is about to be counted; `progress` is the optimizer's before that."""
        self._pending = executor, progress, _left_out(executor)

    def settle(self, executor: Executor) -> Any:
        """Learn what the last step decided, and wait for it, so that `executor` goes on from there.

        Returns the optimizer's progress to go back to if that step was left out, else None.
        """
        last, progress, left_out = self._pending or (executor, None, 0)
        history = last.scale_history
        assert history is not None
        self.value, self.good_steps = last.loss_scale or self.value, history[0]
        if last is not executor and executor.loss_scale != self.value:
            self.give(executor)
        if self._pending is None:
            return None
        self._pending = None
        return progress if history[2] > left_out else None


def _left_out(executor: Executor) -> int:
    history = executor.scale_history
    assert history is not None
    return history[2]


def are_finite(gradients: Iterable[NDArray]) -> bool:
    """Whether no number is inf or nan. Waits for the gradients; O(elements), nothing large is allocated."""
    for g in gradients:
        g.wait_to_read()
        with np.errstate(invalid="ignore"):
            total = np.add.reduce(g.storage, axis=None, dtype=np.float64)
        if not np.isfinite(total):
            return False
    return True
