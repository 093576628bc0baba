"""A store that the ranks of a job share."""

from __future__ import annotations

from typing import Any

from ...dist import barrier, init, rank, size, Sums
from ...dist.exchange import broadcast_into
from ...ndarray import NDArray
from .store import KVStore


class DistributedStore(KVStore):
    """Arrays by key of which every rank has its own copy; all copies are equal.

    What all ranks push at one time is added up in the order of the ranks, and each updates its copy by the
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

    def _of_all_workers(self, key: Any, total: NDArray) -> NDArray:
        if self.num_workers == 1:
            return total
        total = total.tostype("default")
        sums = self._sums.get(key)
        if sums is None or sums.arrays[0].shape != total.shape or sums.arrays[0].dtype != total.dtype:
            sums = self._sums[key] = Sums([total.copy()])
        else:
            total.copyto(sums.arrays[0])
        sums.push()
        return sums.arrays[0]
