"""Loss scaling: float16 gradients are kept within its range by a factor, found by trial.

P. Micikevicius et al. 2018, "Mixed precision training". A factor that is too large shows: some gradient
overflows to inf or nan. Then the update is skipped and the factor halved; after WINDOW good steps it is
doubled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import BindError
from ..executor.amp import amp_dtype, checked_scale
from ..ndarray import NDArray

FIRST = 2.0**16
LARGEST = 2.0**24
WINDOW = 2000  # steps


class LossScale:
    """The factor and how it moves: `value`, and `good_steps` since it moved last."""

    def __init__(self, value: float, dynamic: bool) -> None:
        self.value = value
        self.dynamic = dynamic
        self.good_steps = 0

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


def are_finite(gradients: Iterable[NDArray]) -> bool:
    """Whether no number is inf or nan. Waits for the gradients; O(elements), nothing large is allocated."""
    for g in gradients:
        g.wait_to_read()
        with np.errstate(invalid="ignore"):
            total = np.add.reduce(g.storage, axis=None, dtype=np.float64)
        if not np.isfinite(total):
            return False
    return True
