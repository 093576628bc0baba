"""Callbacks of `Module.fit` for the end of each batch and each epoch.

A batch-end callback takes one BatchEndParam; an epoch-end callback takes (epoch, symbol, arg_params,
aux_params), the epoch counted from 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.log import Log
from ...core.wanted import number, wanted, wanted_path, whole
from ..saved.checkpoint import save_checkpoint

_log = Log(__name__)


class BatchEndParam(NamedTuple):
    """`nbatch` counts from 0 in each epoch; `locals` are the names inside `fit`, for the curious."""

    epoch: int
    nbatch: int
    eval_metric: Any
    locals: Any


def _writing(callback: Any, prefix: str) -> Any:
    """Mark a callback so that `fit` knows that it only reads the arrays that it is given, which saves copies,
    and where it writes, so that a missing folder is reported before the first epoch.
    """
    callback.only_reads = True
    callback.writes = f"{prefix}-0001.params"
    return callback


def _at_least_one(name: str, value: Any) -> int:
    return int(max(1, number(name, value)))


def do_checkpoint(prefix: str, period: int = 1) -> Callable[..., None]:
    """Epoch-end callback: save network and parameters every `period` epochs."""
    period = _at_least_one("do_checkpoint: period", period)
    prefix = wanted_path("do_checkpoint: prefix", prefix)

    def save(epoch: int, symbol: Any, arg_params: Any, aux_params: Any) -> None:
        if (epoch + 1) % period == 0:
            save_checkpoint(prefix, epoch + 1, symbol, arg_params, aux_params)

    return _writing(save, prefix)


def module_checkpoint(
    mod: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False
) -> Callable[..., None]:
    """Epoch-end callback: `mod.save_checkpoint` every `period` epochs."""
    period = _at_least_one("module_checkpoint: period", period)
    wanted("module_checkpoint: mod", mod, "a module", has=("save_checkpoint",))

    def save(epoch: int, symbol: Any = None, arg_params: Any = None, aux_params: Any = None) -> None:
        if (epoch + 1) % period == 0:
            mod.save_checkpoint(prefix, epoch + 1, save_optimizer_states)

    return _writing(save, prefix)


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[BatchEndParam], None]:
    """Batch-end callback: log the metric every `period` batches; `auto_reset`: then start it anew."""
    period = whole("log_train_metric: period", period, 1)

    def log(param: BatchEndParam) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                _log.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return log


def _pairs(param: BatchEndParam) -> list[tuple[str, float]] | None:
    """Names and values of the metric; None if there is none. Waits for the batches so far in either case."""
    if param.eval_metric is not None:
        found: list[tuple[str, float]] = param.eval_metric.get_name_value()
        return found
    module: Any = (param.locals or {}).get("self")
    for output in module.get_outputs() if hasattr(module, "get_outputs") else ():
        output.wait_to_read()
    return None


class Speedometer:
    """Batch-end callback: log samples per second and the metric every `frequent` batches.

    With `auto_reset` the metric shows those batches only, else all of the epoch so far. Only when it logs
    it waits for the batches that it counts: the steps run behind the loop that pushes them.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        self.batch_size = number("Speedometer: batch_size", batch_size)
        self.frequent = _at_least_one("Speedometer: frequent", frequent)
        self.auto_reset = auto_reset
        self.last_count = 0
        self._since: float | None = None  # seconds; None until a batch of this epoch has been seen

    def __call__(self, param: BatchEndParam) -> None:
        wanted("Speedometer's param", param, "a BatchEndParam", has=("nbatch", "eval_metric"))
        count = param.nbatch
        if self.last_count > count:
            self._since = None
        self.last_count = count
        if self._since is None:
            self._since = time.perf_counter()
        elif count % self.frequent == 0:
            pairs = _pairs(param)  # first: this waits for the batches that the clock counts
            now = time.perf_counter()
            self._tell(param, pairs, now - self._since)
            self._since = now

    def _tell(self, param: BatchEndParam, pairs: list[tuple[str, float]] | None, elapsed_s: float) -> None:
        count = param.nbatch
        speed = self.frequent * self.batch_size / elapsed_s if elapsed_s > 0 else math.inf
        if pairs is None:
            _log.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, count, speed)
            return
        if self.auto_reset:
            param.eval_metric.reset_local()
        _log.info(
            "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec" + "\t%s=%f" * len(pairs),
            param.epoch,
            count - self.frequent if self.auto_reset else 0,
            count,
            speed,
            *(x for pair in pairs for x in pair),
        )


class ProgressBar:
    """Batch-end callback: log a bar of `length` characters; `total` is the number of batches in an epoch."""

    def __init__(self, total: int, length: int = 80) -> None:
        self.total = number("ProgressBar: total", total)
        self.bar_len = whole("ProgressBar: length", length, 0)

    def __call__(self, param: BatchEndParam) -> None:
        wanted("ProgressBar's param", param, "a BatchEndParam", has=("nbatch",))
        done = param.nbatch / float(self.total)
        filled = round(self.bar_len * done)
        bar = "=" * filled + "-" * (self.bar_len - filled)
        _log.info("[%s] %s%s\r", bar, math.ceil(100.0 * param.nbatch / float(self.total)), "%")


class LogValidationMetricsCallback:
    """Evaluation callback: log the metric at its end."""

    def __call__(self, param: BatchEndParam) -> None:
        if param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                _log.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)
