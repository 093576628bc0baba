"""Learning rates that depend on the number of updates.

`scheduler(num_update)` gives the rate for the update of that number; the first one is number 1. Warm-up goes
from `warmup_begin_lr` (at update 0) to the base rate (at update `warmup_steps`).

As in MXNet 1.9.1, `base_lr` is also where the current rate is kept: a call changes it, and an optimizer that
is given both a scheduler and a learning rate writes to it. Poly and Cosine start from the base rate of their
constructor whatever is written there later.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar

from ...core.disk.schema import anything, fields, Kind, MOST, real, whole as whole_number
from ...core.errors import ArgumentError, FormatError, MissingMethodError, nearest, RangeError
from ...core.log import Log
from ...core.wanted import found, number, whole

_log = Log(__name__)


def _whole(name: str, value: Any, least: int) -> int:
    return whole(name, value, least, "updates")


_COUNT = real(0, MOST)
MOST_CHANGES = 100_000  # of a rate one by one, at one update


def _when(name: str, value: Any) -> float:
    """A number of updates after which the rate changes: as MXNet takes it, 1 or more, whole or not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentError(f"{name} must be a number of updates, got {found(value)}.")
    result = number(name, value)
    if result < 1:
        raise RangeError(f"{name} must be at least 1, got {value!r}.")
    return int(result) if result.is_integer() else result


class LRScheduler:
    """Base of the schedules; a subclass defines `__call__(num_update) -> float`."""

    limits: ClassVar[dict[str, Kind]] = {}  # of numbers in a file, where being finite is not enough

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
            raise RangeError(f"Warm-up rises: warmup_begin_lr {warmup_begin_lr} is above base_lr {base_lr}.")
        if warmup_mode not in ("linear", "constant"):
            raise RangeError(
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
        raise MissingMethodError(f"{type(self).__name__} must define __call__(num_update).")

    def state(self) -> dict[str, float]:
        """Every number the schedule holds, for a checkpoint."""
        return _numbers(self)

    def set_state(self, state: Mapping[str, float]) -> None:
        """Continue from `state()` of a schedule of the same kind. FormatError if it is not one; nothing is
        changed then.
        """
        mine = self.state()
        kinds = {k: self.limits.get(k, real()) for k in mine}
        if isinstance(state, Mapping):  # values equal to the present ones are accepted from a file
            kinds |= {k: anything for k, v in mine.items() if type(state.get(k)) is type(v) and state[k] == v}
        fields(kinds)(state, f"The saved schedule, a {type(self).__name__},")
        vars(self).update(state)


class FactorScheduler(LRScheduler):
    """`base_lr * factor**k` after `k * step` updates, not below `stop_factor_lr`.

    The rate changes for the first time at the first update above `step`, which need not be whole: epochs
    times batches seldom are.
    """

    limits = {"step": real(1, MOST), "count": _COUNT, "factor": real(-1, 1), "warmup_steps": _COUNT}

    def __init__(
        self,
        step: float,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.step = _when("step", step)
        self.factor = _shrinking(factor)
        self.stop_factor_lr = number("stop_factor_lr", stop_factor_lr)
        self.count: float = 0

    def __call__(self, num_update: int) -> float:
        num_update = _whole("num_update", num_update, 0)
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        changes = 0
        while num_update > self.count + self.step:  # several at once when training is continued
            if max(self.base_lr * self.factor, self.stop_factor_lr) == self.base_lr:  # it changes no more
                self.count += self._changes_until(num_update) * self.step
                break
            changes += 1
            if changes > MOST_CHANGES and abs(self.factor) <= 1:  # a file may ask for 2**53 of them
                left = self._changes_until(num_update) - 1
                self.count += left * self.step
                self.base_lr *= self.factor**left
            self.count += self.step
            self.base_lr *= self.factor
            if self.base_lr < self.stop_factor_lr:
                self.base_lr = self.stop_factor_lr
                _log.info("Update[%d]: learning rate has reached its floor %0.5e", num_update, self.base_lr)
            else:
                _log.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr

    def _changes_until(self, num_update: int) -> int:
        """Number of changes of the rate due before the update of that number; at least 1 if one is."""
        return -int((self.count - num_update) // self.step) - 1


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after each number of updates in the increasing list `step`.

    They need not be whole, as in FactorScheduler.
    """

    limits = {
        "cur_step_ind": whole_number(),
        "count": real(0, MOST),
        "factor": real(most=1),
        "warmup_steps": _COUNT,
    }

    def __init__(
        self,
        step: list[float],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, (list, tuple)) or not step:
            raise ArgumentError(f"step must be a list of one or more update numbers, got {step!r}.")
        self.step = [_when(f"step[{i}]", s) for i, s in enumerate(step)]
        if any(later <= earlier for earlier, later in zip(self.step, self.step[1:])):
            raise RangeError(f"step must increase, got {self.step}.")
        self.cur_step_ind = 0
        self.factor = _shrinking(factor)
        self.count: float = 0

    def __call__(self, num_update: int) -> float:
        num_update = _whole("num_update", num_update, 0)
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            _log.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class _Falling(LRScheduler):
    """From the base rate down to `final_lr` between warm-up's end and `max_update`, constant afterwards."""

    limits = {
        "max_update": real(1, MOST),
        "max_steps": real(1, MOST),
        "power": real(0),
        "warmup_steps": _COUNT,
    }

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
            raise RangeError(
                f"max_update {max_update} leaves nothing after {warmup_steps} updates of warm-up; "
                f"make it at least {self.warmup_steps + 1}."
            )
        self.base_lr_orig = base_lr
        self.final_lr = final_lr
        self.max_steps = self.max_update - self.warmup_steps

    def set_state(self, state: Mapping[str, float]) -> None:
        before = self.state()
        super().set_state(state)
        if self.max_update != self.warmup_steps + self.max_steps:
            vars(self).update(before)
            raise FormatError(
                f"The saved schedule, a {type(self).__name__}, ends at update {state['max_update']}, but "
                f"falls for {state['max_steps']} after {state['warmup_steps']} of warm-up."
            )

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
    """`factor` as a float; RangeError above 1."""
    factor = number("factor", factor)
    if factor > 1.0:
        raise RangeError(f"factor must not be above 1, or the rate would grow; got {factor}.")
    return factor


def _numbers(x: Any) -> dict[str, float]:
    """The numbers among the attributes of `x`."""
    attributes = getattr(x, "__dict__", {})
    return {k: v for k, v in attributes.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def state_of(schedule: Any) -> dict[str, float]:
    """State of a schedule in a checkpoint; it may be any callable of the number of updates.

    If it has no `state()` and `set_state(state)` of its own, these are the numbers among its attributes.
    """
    if callable(getattr(schedule, "state", None)) and callable(getattr(schedule, "set_state", None)):
        found: dict[str, float] = schedule.state()
        return found
    return _numbers(schedule)


def set_state_of(schedule: Any, state: Mapping[str, float]) -> None:
    """Restore the state of a schedule of the same kind. FormatError if it is of another."""
    if callable(getattr(schedule, "state", None)) and callable(getattr(schedule, "set_state", None)):
        schedule.set_state(state)
        return
    mine = _numbers(schedule)
    if not isinstance(state, Mapping) or set(state) != set(mine):
        raise FormatError(
            f"The schedule {type(schedule).__name__} holds {sorted(mine)}, but the saved one has "
            f"{sorted(state) if isinstance(state, Mapping) else found(state)}."
        )
    if bad := [v for v in state.values() if isinstance(v, bool) or not isinstance(v, (int, float))]:
        raise FormatError(f"The saved schedule is corrupt: {found(bad[0])} is no number.")
    if mine:
        vars(schedule).update(state)
