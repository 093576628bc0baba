"""Sums over ranks of arrays that stay, such as the gradients of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends import Backend, backend_of
from ..comm import bucket_workspace, buckets, Collectives, current, sum_bucket, WIRE
from ..core import cpu
from ..core.errors import DeviceError
from ..engine import get_engine
from ..ndarray import NDArray
from ..ndarray.memory.transfer import push_on
from ..ndarray.sparse_arrays.row_gradient import RowGradient
from .compression import TwoBit


class Sums:
    """The sums of these arrays over all ranks, in place; every rank has arrays of the same sizes in this order.

    Small arrays share a message. The scratch is allocated once and serves every `push`. A gradient with flags
    of its rows gets the rows that any rank has. With `compression` each array travels by itself, and has a
    residual here.
    """

    def __init__(self, arrays: Sequence[NDArray], compression: TwoBit | None = None) -> None:
        self.arrays = tuple(arrays)
        dense = [a for array in self.arrays for a in _dense(array)]
        contexts = {a.context: None for a in dense}
        self._backend = _backend_of(dense)
        if len(contexts) > 1 or (self._backend.is_remote and compression is not None):
            why = "from several devices" if len(contexts) > 1 else f"on {dense[0].context} in two bits each"
            raise DeviceError(f"Arrays {why} cannot be summed over ranks; those on mx.cpu() can.")
        if current().size > 1:
            self._backend.join_ranks(current())
        self._compression = compression
        packed = [a for a in dense if a.dtype != np.uint8] if compression is not None else []
        self._packed = [(a, np.zeros(a.size, np.float32)) for a in packed]
        whole = [a for a in dense if all(a is not p for p in packed)]
        self._buckets = _shared(whole)
        sizes = [_whole_bytes(whole), *(TwoBit.work_bytes(a.size, current().size) for a in packed)]
        self._work = self._backend.empty(max(sizes))
        self._runs: dict[int, tuple[list[Any], Callable[[], None]]] = {}

    @staticmethod
    def nbytes_of(arrays: Sequence[NDArray], compression: TwoBit | None = None) -> int:
        """Bytes that the sums of arrays of these sizes own."""
        if compression is not None:
            return compression.nbytes_of([a.shape for a in arrays], current().size)
        return _whole_bytes(arrays)

    def push(self) -> None:
        """Sum what the arrays hold now; later operations on them find the sums. Returns at once."""
        comm = current()
        for array, residual in self._packed:
            assert self._compression is not None
            run = partial(self._compression.sum, comm, array.storage, residual, self._work)
            name = "compressed sum over ranks"
            get_engine().push(run, (), (array.var, WIRE), name=name, kind="io")
        if comm.size == 1:
            return
        for i, bucket in enumerate(self._buckets):
            raw = [a.storage for a in bucket]
            known = self._runs.get(i)
            if known is None or any(a is not b for a, b in zip(raw, known[0])):
                known = self._runs[i] = raw, self._backend.exchange(partial(_tell, raw, self._work))
            writes = (*(a.var for a in bucket), WIRE)
            push_on(self._backend, known[1], (), writes, name="sum over ranks", kind="io")


def _tell(raw: list[Any], work: Any, comm: Collectives) -> None:
    sum_bucket(comm, raw, raw, work)


def _backend_of(arrays: Sequence[NDArray]) -> Backend:
    """The backend of the first of these arrays; the host's, if there is none."""
    return backend_of(arrays[0].context if arrays else cpu())


def _dense(array: NDArray) -> tuple[NDArray, ...]:
    """The dense arrays that an array consists of."""
    return (array.whole, array.flags) if isinstance(array, RowGradient) else (array,)


def _whole_bytes(arrays: Sequence[NDArray]) -> int:
    """Bytes of the scratch for arrays that travel whole."""
    ranks, window = current().size, _backend_of(arrays).window
    sizes = (([a.shape for a in b], np.dtype(b[0].dtype).itemsize, ranks, window) for b in _shared(arrays))
    return max((bucket_workspace(*s) for s in sizes), default=0) if ranks > 1 else 0


def _shared(arrays: Sequence[NDArray]) -> list[tuple[NDArray, ...]]:
    """The arrays of each message."""
    sizes = [(a.size * np.dtype(a.dtype).itemsize, np.dtype(a.dtype)) for a in arrays]
    return [tuple(arrays[i] for i in numbers) for numbers in buckets(sizes)]
