"""Sums of the arrays that several devices of this process have, in the order of the devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..comm import add_in_order, PIECE
from ..core import is_floating
from ..engine import get_engine
from ..ndarray import NDArray
from ..ndarray.sparse_arrays.row_gradient import RowGradient


def add_devices(first: NDArray, others: Sequence[NDArray]) -> None:
    """Replace `first` by ((first + o0) + o1) + ...: arrays of 16 bits are added in float32, rounded once.

    So do ranks, see `comm/ordered_sum.py`. Gradients with flags of their rows get the rows that any has.
    Returns at once; later operations on `first` find the sum.
    """
    if not others:
        return
    arrays = first, *others
    by_rows = [a for a in arrays if isinstance(a, RowGradient)]
    if len(by_rows) == len(arrays):
        _push([a.whole for a in by_rows], np.add)
        _push([a.flags for a in by_rows], np.bitwise_or)
    elif all(a.stype == "default" and a.context.device_type != "gpu" for a in arrays):
        _push(arrays, np.add)
    else:
        total = first
        for other in others:
            total = total + other.as_in_context(total.context)
        total.copyto(first)


def _push(arrays: Sequence[NDArray], join: Any) -> None:
    first, *others = arrays
    run = partial(_add, first.storage, [o.storage for o in others], join)
    get_engine().push(run, [o.var for o in others], (first.var,), name="sum over devices")


def _add(first: Any, others: Sequence[Any], join: Any) -> None:
    if first.dtype.itemsize != 2 or not is_floating(first.dtype) or not first.ndim:
        add_in_order(first, others, None, join)
        return
    rows = max(1, PIECE * len(first) // max(1, first.nbytes))
    wide = np.empty((min(rows, len(first)), *first.shape[1:]), np.float32)
    for at in range(0, len(first), rows):
        part = first[at : at + rows]
        add_in_order(part, [o[at : at + rows] for o in others], wide[: len(part)], join)
