"""The number of elements that a csr array stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import OpAttributeError
from ...core.wanted import found
from .sparse_array import CSRNDArray, dense_array


def getnnz(data: CSRNDArray, axis: int | None = None, out: Any = None) -> Any:
    """The number of stored elements, (1,) int64; with `axis` 1 of each row, with 0 of each column."""
    if not isinstance(data, CSRNDArray) or axis not in (None, 0, 1):
        raise OpAttributeError(
            f"getnnz needs a csr array and the axis 0, 1 or None, got {found(data)}, {axis}."
        )
    form = data.form
    if axis is None:
        counts = np.array([len(form.data)])
    else:
        counts = np.diff(form.indptr) if axis == 1 else np.bincount(form.indices, minlength=form.shape[1])
    result = dense_array(counts.astype("int64"), data.context)
    return result if out is None else result.copyto(out)
