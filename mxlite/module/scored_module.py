"""Evaluation of a module that has its parameters: metrics and predictions over data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core import StateError
from ..core.wanted import wanted, wanted_function, whole
from ..ndarray import array, concatenate, NDArray
from .metrics import metric as metric_module
from .module_contract import as_list, ModuleContract
from .watch.callback import BatchEndParam

Callbacks = Callable[..., Any] | list[Callable[..., Any]] | None


class ScoredModule(ModuleContract):
    """A module with `score` and `predict`."""

    def score(
        self,
        eval_data: Any,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Callbacks = None,
        score_end_callback: Callbacks = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """Evaluate the metric over `eval_data`; (name, value) pairs."""
        self.need(params=True)
        check_data("score: eval_data", eval_data)
        for what, given in (("batch_end", batch_end_callback), ("score_end", score_end_callback)):
            check_callbacks(f"score: {what}_callback", given)
        num_batch = None if num_batch is None else whole("score: num_batch", num_batch, 0)
        if reset:
            eval_data.reset()
        eval_metric = metric_module.create(eval_metric)
        eval_metric.reset()
        seen = 0
        for nbatch, batch in enumerate(eval_data):
            if num_batch is not None and nbatch == num_batch:
                break
            self.forward(batch, is_train=False)
            self._metric_of_batch(eval_metric, batch)
            seen = nbatch + 1
            self._call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
        self._call(score_end_callback, BatchEndParam(epoch, seen, eval_metric, locals()))
        return list(eval_metric.get_name_value())

    def _metric_of_batch(self, eval_metric: Any, batch: Any) -> None:
        if isinstance(batch, list):
            self.update_metric(eval_metric, [b.label for b in batch], pre_sliced=True)
        else:
            self.update_metric(eval_metric, batch.label)

    def iter_predict(
        self, eval_data: Any, num_batch: int | None = None, reset: bool = True, sparse_row_id_fn: Any = None
    ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """Yield (outputs, batch number, batch), padding rows cut off."""
        self.need(params=True)
        check_data("predict: eval_data", eval_data)
        if reset:
            eval_data.reset()
        for nbatch, batch in enumerate(eval_data):
            if num_batch is not None and nbatch == num_batch:
                break
            self.forward(batch, is_train=False)
            pad = batch.pad or 0
            yield [out[0 : out.shape[0] - pad] for out in self.get_outputs()], nbatch, batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """Outputs for all of `eval_data` (an iterator, or an array for one batch).

        Merged over batches: an NDArray, or a list of them for several outputs; else a list per batch.
        """
        self.need(params=True)
        if isinstance(eval_data, (NDArray, np.ndarray)):
            from ..io import DataBatch

            data = eval_data if isinstance(eval_data, NDArray) else array(eval_data)
            self.forward(DataBatch([data]), is_train=False)
            return self.get_outputs()[0]
        batches = [
            [o.copy() for o in outputs] for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset)
        ]
        if not batches or not merge_batches:
            return batches
        if len({len(b) for b in batches}) != 1:
            raise StateError("Batches gave different numbers of outputs; ask for merge_batches=False.")
        merged = [concatenate(list(parts)) for parts in zip(*batches)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    @staticmethod
    def _call(callbacks: Callbacks, *args: Any) -> None:
        for callback in as_list(callbacks):
            callback(*args)


def check_data(name: str, value: Any) -> None:
    wanted(name, value, "a DataIter", has=("provide_data", "reset", "__iter__"))


def check_callbacks(name: str, value: Any) -> None:
    for callback in as_list(value):
        wanted_function(name, callback, "a function or a list of them")
