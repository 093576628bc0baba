"""Sums over ranks of arrays that stay, such as the gradients of a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ..comm import bucket_workspace, buckets, current, sum_bucket, WIRE
from ..core.errors import DeviceError
from ..engine import get_engine
from ..ndarray import NDArray
from ..ndarray.sparse_arrays.row_gradient import RowGradient


class Sums:
    """The sums of these arrays over all ranks, in place; every rank has arrays of the same sizes in this order.

    Small arrays share a message. The scratch is allocated once and serves every `push`. A gradient with flags
    of its rows gets the rows that any rank has.
    """

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        self.arrays = tuple(arrays)
        dense = [a for array in self.arrays for a in _dense(array)]
        for array in dense:
            if array.context.device_type != "cpu":
                raise DeviceError(
                    f"Arrays on {array.context} cannot be summed over ranks; those on mx.cpu() can."
                )
        self._buckets = _shared(dense)
        self._work = np.empty(self.nbytes_of(dense), np.uint8)

    @staticmethod
    def nbytes_of(arrays: Sequence[NDArray]) -> int:
        """Bytes of the scratch for arrays of these sizes."""
        ranks = current().size
        sizes = (([a.shape for a in b], np.dtype(b[0].dtype).itemsize, ranks) for b in _shared(arrays))
        return max((bucket_workspace(*s) for s in sizes), default=0) if ranks > 1 else 0

    def push(self) -> None:
        """Sum what the arrays hold now; later operations on them find the sums. Returns at once."""
        comm = current()
        if comm.size == 1:
            return
        push = get_engine().push
        for bucket in self._buckets:
            raw = [a.storage for a in bucket]
            run = partial(sum_bucket, comm, raw, raw, self._work)
            push(run, (), (*(a.var for a in bucket), WIRE), name="sum over ranks", kind="io")


def _dense(array: NDArray) -> tuple[NDArray, ...]:
    """The dense arrays that an array consists of."""
    return (array.whole, array.flags) if isinstance(array, RowGradient) else (array,)


def _shared(arrays: Sequence[NDArray]) -> list[tuple[NDArray, ...]]:
    """The arrays of each message."""
    sizes = [(a.size * np.dtype(a.dtype).itemsize, np.dtype(a.dtype)) for a in arrays]
    return [tuple(arrays[i] for i in numbers) for numbers in buckets(sizes)]
