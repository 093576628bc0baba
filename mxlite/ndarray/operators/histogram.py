"""`mx.nd.histogram`: the number of elements between edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import ShapeError
from ...core.wanted import number, wanted, whole
from ..calls.invoke import call_of, invoke
from ..ndarray import NDArray
from .creation import array


def histogram(a: NDArray, bins: int | NDArray = 10, range: Sequence[float] | None = None) -> list[NDArray]:
    """[counts, edges]: counts[i] elements of `a` are in [edges[i], edges[i+1]), the last edge included.

    `bins` is a number of equal bins between the two ends in `range`, or the edges. Elements outside, and
    nan, are left out. With neither range nor edges the ends are the smallest and the largest element, and
    both results are float32, as MXNet's; that waits, and so does a look at given edges. There is no gradient.
    """
    wanted("histogram: a", a, "an NDArray", NDArray)
    if isinstance(bins, NDArray):
        if bins.ndim != 1 or bins.size < 2 or (np.diff(bins.asnumpy()) < 0).any():
            raise ShapeError(f"histogram: bins must be 2 rising edges or more, got {bins.shape}.")
        counted: list[NDArray] = invoke(call_of("_histogram", {}), (a, bins.astype(a.dtype, copy=False)))
        return counted
    count = whole("histogram: bins", bins, 1)
    if range is None:
        return [array(x, dtype="float32") for x in np.histogram(a.asnumpy().ravel(), count)]
    ends = tuple(number("histogram: range", x) for x in _two(range))
    counted = invoke(call_of("_histogram", {"bin_cnt": count, "range": ends}), (a,))
    return counted


def _two(ends: Any) -> Any:
    if len(wanted("histogram: range", ends, "(lowest, highest)", list, tuple)) != 2:
        raise ShapeError(f"histogram: range must be (lowest, highest), got {ends}.")
    return ends
