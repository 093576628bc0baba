"""The row_sparse gradient of a bound program: a planned dense array, and planned flags of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.cached import cached_property
from ..memory.storage import Shape
from ..ndarray import NDArray
from .sparse_array import RowSparseNDArray
from .sparse_form import Array, index_type, RowSparseForm


class _Present(RowSparseForm):
    """The currently stored rows, looked up on demand: many readers need only the shape."""

    def __init__(self, whole: NDArray, flags: NDArray) -> None:
        self.__dict__.update(shape=whole.shape, _whole=whole, _flags=flags)

    @property
    def dtype(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = self.__dict__["_whole"].storage.dtype
        return kind

    @cached_property
    def indices(self) -> Array:
        rows: Array = np.flatnonzero(self.__dict__["_flags"].look()).astype(index_type)
        return rows

    @cached_property
    def data(self) -> Array:
        rows: Array = self.__dict__["_whole"].look()[self.indices]
        return rows


class RowGradient(RowSparseNDArray):
    """`whole` (R, ...) with the rows that are flagged in `flags`, (R,) uint8; all others are 0.

    `of_sparse`: True if the weight was declared with stype='row_sparse'.
    """

    __slots__ = ("flags", "of_sparse", "whole")

    def __init__(self, whole: NDArray, flags: NDArray, of_sparse: bool) -> None:
        self.whole, self.flags, self.of_sparse = whole, flags, of_sparse
        self.context = whole.context
        self.var = whole.var
        self.partial = False
        self.origin = None

    @property
    def storage(self) -> Any:
        """The currently stored rows. A reader of their values waits."""
        return _Present(self.whole, self.flags)

    @storage.setter
    def storage(self, form: Any) -> None:
        self.whole[:] = form.dense()
        flags = np.zeros(len(form), np.uint8)
        flags[form.indices] = 1
        self.flags[:] = flags

    @property
    def form(self) -> Any:
        """A snapshot of the currently stored rows."""
        now = self.storage
        return RowSparseForm(now.shape, now.data, now.indices)

    @property
    def shape(self) -> Shape:
        return self.whole.shape

    @property
    def dtype(self) -> type[Any]:
        return self.whole.dtype

    @property
    def ndim(self) -> int:
        return self.whole.ndim

    @property
    def size(self) -> int:
        return self.whole.size

    def plain(self) -> NDArray:
        return self.whole

    def asnumpy(self) -> Array:
        return self.whole.asnumpy()

    def look(self) -> Array:
        return self.whole.look()
