"""`mx.misc`: the learning rates of MXNet's oldest examples. `mx.lr_scheduler` has the others."""

from __future__ import annotations

from ..core.errors import RangeError
from ..core.wanted import number, whole
from .optim.lr_scheduler import LRScheduler as LearningRateScheduler

__all__ = ["FactorScheduler", "LearningRateScheduler"]


class FactorScheduler(LearningRateScheduler):
    """`base_lr * factor**(num_update // step)`: one update before `mx.lr_scheduler`'s, with no floor."""

    def __init__(self, step: int, factor: float = 0.1) -> None:
        super().__init__()
        self.step = whole("step", step, 1, "updates")
        self.factor = number("factor", factor)
        if self.factor >= 1.0:
            raise RangeError(f"factor must be below 1, so that the rate falls; got {factor}.")

    def __call__(self, num_update: int) -> float:
        rate: float = self.base_lr * self.factor ** (num_update // self.step)
        return rate
