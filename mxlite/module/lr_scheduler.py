"""Learning rates that depend on the number of updates.

`scheduler(num_update)` gives the rate for the update of that number; the first one is number 1. Warm-up goes
from `warmup_begin_lr` (at update 0) to the base rate (at update `warmup_steps`).

As in MXNet 1.9.1, `base_lr` is also where the current rate is kept: a call changes it, and an optimizer that
is given both a scheduler and a learning rate writes to it. Poly and Cosine start from the base rate of their
constructor whatever is written there later.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from ..core.errors import FormatError, nearest
from ..core.wanted import number, whole


def _whole(name: str, value: Any, least: int) -> int:
    return whole(name, value, least, "updates")


class LRScheduler:
    """Base of the schedules; a subclass defines `__call__(num_update) -> float`."""

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        self.base_lr = base_lr = number("base_lr", base_lr)
        self.warmup_steps = _whole("warmup_steps", warmup_steps, 0)
        self.warmup_final_lr = base_lr
        self.warmup_begin_lr = warmup_begin_lr = number("warmup_begin_lr", warmup_begin_lr)
        if warmup_begin_lr > base_lr:
            raise ValueError(f"Warm-up rises: warmup_begin_lr {warmup_begin_lr} is above base_lr {base_lr}.")
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(
                f"warmup_mode is 'linear' or 'constant', got {warmup_mode!r}."
                f"{nearest(str(warmup_mode), ('linear', 'constant'))}"
            )
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate at an update below `warmup_steps`."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = (self.warmup_final_lr - self.warmup_begin_lr) * float(num_update) / float(self.warmup_steps)
        return self.warmup_begin_lr + rise

    def __call__(self, num_update: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(num_update).")

    def state(self) -> dict[str, float]:
        """Every number the schedule holds, for a checkpoint."""
        return {
            k: v for k, v in vars(self).items() if isinstance(v, (int, float)) and not isinstance(v, bool)
        }

    def set_state(self, state: Mapping[str, float]) -> None:
        """Continue from `state()` of a schedule of the same kind."""
        mine = self.state()
        if set(mine) != set(state) or not all(isinstance(v, (int, float)) for v in state.values()):
            raise FormatError(
                f"A {type(self).__name__} holds {sorted(mine)}, but the saved schedule has {sorted(state)}."
            )
        vars(self).update(state)


class FactorScheduler(LRScheduler):
    """`base_lr * factor**k` after `k * step` updates, not below `stop_factor_lr`.

    The rate changes for the first time at update `step + 1`.
    """

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.step = _whole("step", step, 1)
        self.factor = _shrinking(factor)
        self.stop_factor_lr = number("stop_factor_lr", stop_factor_lr)
        self.count = 0

    def __call__(self, num_update: int) -> float:
        num_update = _whole("num_update", num_update, 0)
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while num_update > self.count + self.step:  # several at once when training is continued
            self.count += self.step
            self.base_lr *= self.factor
            if self.base_lr < self.stop_factor_lr:
                self.base_lr = self.stop_factor_lr
                logging.info(
                    "Update[%d]: learning rate has reached its floor %0.5e", num_update, self.base_lr
                )
            else:
                logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after each number of updates in the increasing list `step`."""

    def __init__(
        self,
        step: list[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, (list, tuple)) or not step:
            raise TypeError(f"step must be a list of one or more update numbers, got {step!r}.")
        self.step = [_whole(f"step[{i}]", s, 1) for i, s in enumerate(step)]
        if any(later <= earlier for earlier, later in zip(self.step, self.step[1:])):
            raise ValueError(f"step must increase, got {self.step}.")
        self.cur_step_ind = 0
        self.factor = _shrinking(factor)
        self.count = 0

    def __call__(self, num_update: int) -> float:
        num_update = _whole("num_update", num_update, 0)
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class _Falling(LRScheduler):
    """From the base rate down to `final_lr` between warm-up's end and `max_update`, constant afterwards."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.max_update = _whole("max_update", max_update, 1)
        if self.max_update <= self.warmup_steps:
            raise ValueError(
                f"max_update {max_update} leaves nothing after {warmup_steps} updates of warm-up; "
                f"make it at least {self.warmup_steps + 1}."
            )
        self.base_lr_orig = base_lr
        self.final_lr = final_lr
        self.max_steps = self.max_update - self.warmup_steps

    def falling(self, num_update: int) -> float:
        """The rate between the end of warm-up and `max_update`, both included."""
        raise NotImplementedError

    def __call__(self, num_update: int) -> float:
        num_update = _whole("num_update", num_update, 0)
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update <= self.max_update:
            self.base_lr = self.falling(num_update)
        return self.base_lr


class PolyScheduler(_Falling):
    """`final_lr + (base_lr - final_lr) * (1 - t)**pwr`, t from 0 after warm-up to 1 at `max_update`."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def falling(self, num_update: int) -> float:
        left = 1 - float(num_update - self.warmup_steps) / float(self.max_steps)
        return float(self.final_lr + (self.base_lr_orig - self.final_lr) * left**self.power)


class CosineScheduler(_Falling):
    """`final_lr + (base_lr - final_lr) * (1 + cos(pi t)) / 2`, t from 0 after warm-up to 1 at the end."""

    def falling(self, num_update: int) -> float:
        turn = math.pi * (num_update - self.warmup_steps) / self.max_steps
        return self.final_lr + (self.base_lr_orig - self.final_lr) * (1 + math.cos(turn)) / 2


def _shrinking(factor: float) -> float:
    """`factor` as a float; ValueError above 1."""
    factor = number("factor", factor)
    if factor > 1.0:
        raise ValueError(f"factor must not be above 1, or the rate would grow; got {factor}.")
    return factor
