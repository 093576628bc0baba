"""Data of FeedForward: an iterator, or arrays that are wrapped in one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import ArgumentError, RangeError, ShapeError
from ..io import DataIter, NDArrayIter
from ..ndarray import NDArray


def iterator(X: Any, y: Any, batch_size: int, for_training: bool = False) -> Any:
    """An iterator over X (N, ...) and y (N,) or (N, 1), in batches of `batch_size` at most, shuffled for
    training; X if it is one itself.
    """
    if not isinstance(X, (np.ndarray, NDArray)):
        if not isinstance(X, DataIter):
            raise ArgumentError(
                f"FeedForward: X is a DataIter, NDArray or numpy array, got {type(X).__name__}."
            )
        return X
    if y is None:
        if for_training:
            raise RangeError("FeedForward: training on an array X needs y, its labels.")
        y = np.zeros(X.shape[0])
    if not isinstance(y, (np.ndarray, NDArray)):
        raise ArgumentError(f"FeedForward: y is an array where X is one, got {type(y).__name__}.")
    if X.shape[0] != y.shape[0]:
        raise ShapeError(f"FeedForward: X has {X.shape[0]} samples, y {y.shape[0]} labels.")
    if len(y.shape) == 2 and y.shape[1] == 1:
        y = y.reshape((y.shape[0],))
    if len(y.shape) != 1:
        raise ShapeError(f"FeedForward: y must be (N,) or (N, 1), but it is {tuple(y.shape)}.")
    size = min(X.shape[0], batch_size)
    if for_training:
        return NDArrayIter(X, y, size, shuffle=True, last_batch_handle="roll_over")
    return NDArrayIter(X, y, size)


def held_out(eval_data: Any, batch_size: int) -> Any:
    """An iterator over eval_data, an iterator or a pair (data, labels); None for None."""
    if eval_data is None or isinstance(eval_data, DataIter):
        return eval_data
    if not isinstance(eval_data, (tuple, list)) or len(eval_data) != 2 or eval_data[0] is None:
        raise ArgumentError("FeedForward: eval_data is a DataIter, or a pair of arrays (data, labels).")
    x, y = (np.array(a) if isinstance(a, list) else a for a in eval_data)
    if y is None and isinstance(x, DataIter):
        return x
    return iterator(x, y, batch_size, for_training=True)
