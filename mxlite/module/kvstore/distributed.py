"""A store that the ranks of a job share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dist import barrier, init, rank, size, Sums, TwoBit
from ...dist.exchange import broadcast_into
from ...ndarray import NDArray, zeros
from ...ndarray.sparse_arrays.row_gradient import RowGradient
from .store import KVStore


class DistributedStore(KVStore):
    """Arrays by key of which every rank has its own copy; all copies are equal.

    The arrays that all ranks push are added up in the order of the ranks, and each updates its copy by the
    sum: there is no server. All ranks make the same calls in the same order, and `init` takes the values of
    rank 0.
    """

    def __init__(self, kind: str = "dist_sync") -> None:
        super().__init__(kind)
        init()
        self._sums: dict[Any, Sums] = {}  # of each key, with the array that is summed

    @property
    def rank(self) -> int:
        """This worker's number, from 0."""
        return rank()

    @property
    def num_workers(self) -> int:
        """Number of ranks."""
        return size()

    def barrier(self) -> None:
        """Wait until all ranks are here, and everything they pushed is done."""
        barrier()

    def _share(self, array: NDArray) -> None:
        broadcast_into(array)

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Send what is pushed in two bits an element from now on: {'type': '2bit', 'threshold': 0.5}.

        The rest is kept, a float32 array for each key, and added to what is pushed next. See
        `dist/compression.py`. {'type': 'none'} ends it.
        """
        self.compression = TwoBit.of(compression_params)
        self._sums.clear()

    def of_all_workers(self, key: Any, total: NDArray) -> NDArray:
        """The sum of what all workers give at one time; of arrays of rows, of those that any has."""
        if self.num_workers == 1 and self.compression is None:
            return total
        if total.stype == "csr":
            total = total.tostype("default")
        sums = self._sums.get(key)
        kind = total.stype, total.shape, total.dtype
        if sums is None or (sums.arrays[0].stype, sums.arrays[0].shape, sums.arrays[0].dtype) != kind:
            sums = self._sums[key] = Sums([_own(total)], self.compression)
        own = sums.arrays[0]
        if isinstance(own, RowGradient):
            own.storage = total.storage
        else:
            total.copyto(own)
        sums.push()
        return own


def _own(total: Any) -> NDArray:
    """An array like it, for a sum: one of rows is a dense one with flags of its rows, which are joined."""
    if total.stype != "row_sparse":
        return zeros(total.shape, ctx=total.context, dtype=total.dtype)
    return RowGradient(zeros(total.shape, dtype=total.dtype), zeros(total.shape[:1], dtype=np.uint8), True)
