"""`mx.nd.histogram`: how many elements lie between edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.wanted import number, wanted, whole
from .creation import array
from .ndarray import NDArray


def histogram(a: NDArray, bins: int | NDArray = 10, range: Sequence[float] | None = None) -> list[NDArray]:
    """[counts, edges]: counts[i] elements of `a` are in [edges[i], edges[i+1]), the last edge included.

    `bins` is a number of equal bins between the two ends in `range`, or the edges. What lies outside, and
    nan, is left out. With neither range nor edges the ends are the smallest and the largest element, and both
    results are float32, as MXNet's. Counted on the host, so it waits; there is no gradient.
    """
    numbers = wanted("histogram: a", a, "an NDArray", NDArray).asnumpy().ravel()
    if isinstance(bins, NDArray):
        if bins.ndim != 1 or bins.size < 2 or (np.diff(bins.asnumpy()) < 0).any():
            raise ShapeError(f"histogram: bins must be 2 rising edges or more, got {bins.shape}.")
        counts, edges = np.histogram(numbers[~np.isnan(numbers)], bins.asnumpy())
        return [array(counts, dtype="int64"), array(edges, dtype=a.dtype)]
    count = whole("histogram: bins", bins, 1)
    if range is None:
        return [array(x, dtype="float32") for x in np.histogram(numbers, count)]
    low, high = (number("histogram: range", x) for x in _two(range))
    counts, edges = np.histogram(numbers, count, (low, high))
    return [array(counts, dtype="int64"), array(edges, dtype=a.dtype)]


def _two(ends: Any) -> Any:
    if len(wanted("histogram: range", ends, "(lowest, highest)", list, tuple)) != 2:
        raise ShapeError(f"histogram: range must be (lowest, highest), got {ends}.")
    return ends
