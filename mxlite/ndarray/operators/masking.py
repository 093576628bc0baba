"""Functions whose result's size depends on values; operators cannot, as a graph's shapes are known first."""

from __future__ import annotations

import numpy as np

from ...core import ShapeError
from ..calls.invoke import call_of, invoke
from ..ndarray import NDArray
from .creation import array


def boolean_mask(data: NDArray, index: NDArray, axis: int = 0) -> NDArray:
    """The slices of `data` along `axis` for which `index` is not 0.

    data: (A..., K, B...) with K at `axis`;  index: (K,)  ->  (A..., n, B...), n the number of indices that
    are not 0. Waits for `index`. The gradient of `data` is 0 at the slices left out.
    """
    if not -data.ndim <= axis < data.ndim or index.shape != (data.shape[axis],):
        raise ShapeError(
            f"boolean_mask: index must be as long as axis {axis} of {data.shape}, got {index.shape}."
        )
    places = np.flatnonzero(index.asnumpy())
    chosen = array(places, index.context, "int64")
    result: NDArray = invoke(call_of("take", {"axis": axis}), (data, chosen))
    return result
