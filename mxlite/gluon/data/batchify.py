"""Functions that make one batch of a list of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core.errors import ShapeError
from ...ndarray import NDArray


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Arrays and numbers are stacked; of tuples each place for itself.

    Whole numbers keep their type, floating ones of Python become float32.
    """
    first = data[0]
    if isinstance(first, (tuple, list)):
        return [default_batchify_fn(place) for place in zip(*data)]
    return Stack()(data)


def _rows(data: Sequence[Any]) -> list[np.ndarray]:
    return [d.asnumpy() if isinstance(d, NDArray) else np.asarray(d) for d in data]


def _array(values: np.ndarray, dtype: Any) -> NDArray:
    if dtype is None:
        narrow = {"float64": np.float32, "int64": np.int32}
        dtype = narrow.get(values.dtype.name, values.dtype)
    return nd.array(values, dtype=dtype)


class Stack:
    """Samples of one shape as one array, the batch first. ShapeError if shapes differ."""

    def __init__(self, dtype: Any = None) -> None:
        self._dtype = dtype

    def __call__(self, data: Sequence[Any]) -> NDArray:
        rows = _rows(data)
        if len(shapes := {r.shape for r in rows}) > 1:
            raise ShapeError(
                f"Samples of shapes {sorted(shapes)} cannot be stacked: batchify_fn=batchify.Pad() fills "
                f"shorter "
                f"ones up."
            )
        return _array(np.stack(rows), self._dtype)


class Pad:
    """Samples as one array, shorter ones filled up with `val`; with `ret_length` also their lengths along
    `axis`.
    """

    def __init__(self, axis: int = 0, val: float = 0, ret_length: bool = False, dtype: Any = None) -> None:
        self._axis, self._val, self._ret_length, self._dtype = axis, val, ret_length, dtype

    def __call__(self, data: Sequence[Any]) -> Any:
        rows = _rows(data)
        shape = np.max([r.shape for r in rows], axis=0)
        out = np.full((len(rows), *shape), self._val, rows[0].dtype)
        for place, row in zip(out, rows):
            place[tuple(slice(n) for n in row.shape)] = row
        made = _array(out, self._dtype)
        lengths = [r.shape[self._axis] for r in rows]
        return (made, nd.array(np.array(lengths, np.int32), dtype="int32")) if self._ret_length else made


class Group:
    """One function for each place of samples that are tuples."""

    def __init__(self, *fns: Callable[[Sequence[Any]], Any]) -> None:
        self._fns = tuple(fns[0]) if len(fns) == 1 and isinstance(fns[0], (list, tuple)) else fns

    def __call__(self, data: Sequence[Any]) -> tuple[Any, ...]:
        if len(data[0]) != len(self._fns):
            raise ShapeError(f"Samples have {len(data[0])} parts, and there are {len(self._fns)} functions.")
        return tuple(fn(place) for fn, place in zip(self._fns, zip(*data)))


Tuple = Group
