"""A live progress bar: loss, accuracy, images per second and peak memory."""

from __future__ import annotations

import time
from typing import Any, TextIO

from ...core.bytesize import format_bytes
from .callback import BatchEndParam

_SHORT = {"cross-entropy": "loss", "nll-loss": "loss"}


class TqdmProgress:
    """One tqdm bar per epoch. Give the same object as batch-end and as epoch-end callback of `fit`.

    `total` is the number of batches in an epoch (None: not known), `num_epoch` only for the title,
    `peak_bytes` the plan's peak, shown as it is given. `file` is where the bar goes, stderr by default.
    `close()` ends an open bar, for example after Ctrl-C; a new epoch does so by itself. Images per second
    are counted from the first batch's end, so that binding and the first run do not count.
    """

    def __init__(
        self,
        batch_size: int,
        total: int | None = None,
        num_epoch: int | None = None,
        peak_bytes: int | None = None,
        file: TextIO | None = None,
        min_interval_s: float = 0.1,
    ) -> None:
        self.batch_size = batch_size
        self.total = total
        self.num_epoch = num_epoch
        self.peak_bytes = peak_bytes
        self._file = file
        self._min_interval_s = min_interval_s
        self._bar: Any = None
        self._epoch = -1
        self._first_s = 0.0
        self._first_batch = 0

    def __call__(self, param: BatchEndParam | int, *rest: Any) -> None:
        """With a BatchEndParam: show the batch. With (epoch, symbol, arg_params, aux_params): end the bar."""
        if isinstance(param, int):
            self.close()
            return
        if self._bar is None or param.epoch != self._epoch or param.nbatch < self._bar.n:
            self._open(param)
        bar = self._bar
        bar.set_postfix_str(", ".join(self._figures(param)), refresh=False)
        bar.update(param.nbatch + 1 - bar.n)

    def close(self) -> None:
        """End the open bar, if there is one; its last line stays."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None

    def _open(self, param: BatchEndParam) -> None:
        from tqdm import tqdm  # takes longer to import than half of mxlite

        self.close()
        of = "" if self.num_epoch is None else f"/{self.num_epoch}"
        self._bar = tqdm(
            total=self.total,
            initial=param.nbatch,
            desc=f"Epoch {param.epoch + 1}{of}",
            unit="batch",
            file=self._file,
            dynamic_ncols=True,
            mininterval=self._min_interval_s,
        )
        self._epoch = param.epoch
        self._first_s = time.perf_counter()
        self._first_batch = param.nbatch

    def _figures(self, param: BatchEndParam) -> list[str]:
        figures = []
        if param.eval_metric is not None:
            # The value for the whole epoch: a Speedometer beside this bar may reset the local one.
            for name, value in param.eval_metric.get_global_name_value():
                figures.append(f"{_SHORT.get(name, name)}={value:.4f}")
        seconds, batches = time.perf_counter() - self._first_s, param.nbatch - self._first_batch
        if batches and seconds > 0:
            figures.append(f"{batches * self.batch_size / seconds:.1f} images/s")
        if self.peak_bytes is not None:
            figures.append(f"peak {format_bytes(self.peak_bytes)}")
        return figures
