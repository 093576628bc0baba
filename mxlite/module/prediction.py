"""Predictions of a module that has its parameters, over an iterator's batches or for one array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TYPE_CHECKING

import numpy as np

from ..core import StateError
from ..ndarray import array, concatenate, NDArray
from .loop_arguments import check_data

if TYPE_CHECKING:
    from .base_module import BaseModule


def iter_predict(
    module: BaseModule, eval_data: Any, num_batch: int | None, reset: bool
) -> Iterator[tuple[list[NDArray], int, Any]]:
    """Yield (outputs, batch number, batch), padding rows cut off."""
    module.need(params=True)
    check_data("predict: eval_data", eval_data)
    if reset:
        eval_data.reset()
    for nbatch, batch in enumerate(eval_data):
        if num_batch is not None and nbatch == num_batch:
            break
        module.forward(batch, is_train=False)
        pad = batch.pad or 0
        yield [out[0 : out.shape[0] - pad] for out in module.get_outputs()], nbatch, batch


def predict(
    module: BaseModule,
    eval_data: Any,
    num_batch: int | None,
    merge_batches: bool,
    reset: bool,
    always_output_list: bool,
) -> Any:
    """Outputs for all of `eval_data` (an iterator, or an array for one batch).

    Merged over batches: an NDArray, or a list of them for several outputs; else a list per batch.
    """
    module.need(params=True)
    if isinstance(eval_data, (NDArray, np.ndarray)):
        from ..io import DataBatch

        data = eval_data if isinstance(eval_data, NDArray) else array(eval_data)
        module.forward(DataBatch([data]), is_train=False)
        return module.get_outputs()[0]
    batches = [
        [o.copy() for o in outputs] for outputs, _, _ in module.iter_predict(eval_data, num_batch, reset)
    ]
    if not batches or not merge_batches:
        return batches
    if len({len(b) for b in batches}) != 1:
        raise StateError("Batches gave different numbers of outputs; ask for merge_batches=False.")
    merged = [concatenate(list(parts)) for parts in zip(*batches)]
    return merged[0] if len(merged) == 1 and not always_output_list else merged
