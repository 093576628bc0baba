"""Sums over ranks of arrays that stay, such as the gradients of a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..comm import bucket_workspace, buckets, current, sum_bucket, WIRE
from ..core.errors import DeviceError
from ..engine import get_engine
from ..ndarray import NDArray


class Sums:
    """The sums of these arrays over all ranks, in place; every rank has arrays of the same sizes in this order.

    Small arrays share a message. The scratch is allocated once and serves every `push`.
    """

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        self.arrays = tuple(arrays)
        for array in self.arrays:
            if array.context.device_type != "cpu":
                raise DeviceError(f"Arrays on {array.context} cannot be summed over ranks; those on mx.cpu() can.")
        sizes = [(a.size * np.dtype(a.dtype).itemsize, np.dtype(a.dtype)) for a in self.arrays]
        self._buckets = [tuple(self.arrays[i] for i in numbers) for numbers in buckets(sizes)]
        comm, need = current(), 0
        for bucket in self._buckets:
            itemsize = np.dtype(bucket[0].dtype).itemsize
            need = max(need, bucket_workspace([a.shape for a in bucket], itemsize, comm.size))
        self._work = np.empty(need if comm.size > 1 else 0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of the scratch."""
        return self._work.nbytes

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
