"""DataLoader: batches of a data set, made here, by threads or by processes.

Workers are asked for some batches ahead (`prefetch`), and give them back in order. A process has the data
set from its parent, of which it is a fork (where there is none, it gets a copy by pickle), and sends batches
through a pipe. It ends when its parent does, however that ends.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.pool  # programs written for MXNet, which imports it, find it: Sockeye's do
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler as ForkingPickler
from typing import Any

from ...core import StateError
from ...core.errors import ArgumentError
from ...core.wanted import whole
from ...ndarray import NDArray
from .batchify import default_batchify_fn as default_batchify_fn
from .multi_worker import made_batch, MultiWorkerIter
from .sampler import BatchSampler, RandomSampler, SequentialSampler

default_mp_batchify_fn = default_batchify_fn
"""MXNet's name for the one of worker processes, which need no other here."""
_MultiWorkerIter = MultiWorkerIter
"""MXNet's name, from which GluonCV's loaders derive."""


def as_in_context(data: Any, ctx: Any) -> Any:
    """A batch on a device: lists and tuples of arrays, also nested, as lists; what is none stays."""
    if isinstance(data, NDArray):
        return data.as_in_context(ctx)
    return [as_in_context(d, ctx) for d in data] if isinstance(data, (list, tuple)) else data


_as_in_context = as_in_context
"""MXNet's name, which GluonNLP's loaders import, as they do `ForkingPickler`."""


class DataLoader:
    """Batches: `for x, y in DataLoader(dataset, batch_size=32, shuffle=True)`.

    sampler or batch_sampler: the order, instead of `shuffle`.  last_batch: 'keep', 'discard' or 'rollover'.
    batchify_fn: makes a batch of a list of samples; by default it stacks them.  num_workers: processes, or
    threads with `thread_pool`, that make batches, `prefetch` of them ahead (two for each worker).  timeout:
    seconds to wait for a batch.  pin_memory has no effect.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
    ) -> None:
        if batch_sampler is None:
            if batch_size is None:
                raise ArgumentError("DataLoader: give batch_size, or batch_sampler.")
            if sampler is None:
                sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
            elif shuffle:
                raise ArgumentError("DataLoader: shuffle has no effect beside sampler; give one of them.")
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ArgumentError(
                "DataLoader: batch_sampler decides batches; batch_size, shuffle, sampler and last_batch are "
                "not given beside it."
            )
        self._dataset = dataset
        self._batch_sampler = batch_sampler
        self._batchify_fn = default_batchify_fn if batchify_fn is None else batchify_fn
        self._pin_memory = pin_memory
        self._num_workers = whole("DataLoader: num_workers", num_workers, 0)
        self._timeout = timeout
        ahead = 2 * self._num_workers if prefetch is None else whole("DataLoader: prefetch", prefetch, 0)
        self._prefetch = max(ahead, 1)
        self._pool: Executor | None = None
        if self._num_workers:
            begin = (dataset, self._batchify_fn)
            if thread_pool:
                self._pool = ThreadPoolExecutor(self._num_workers)
            else:
                kinds = multiprocessing.get_all_start_methods()
                context = multiprocessing.get_context("fork" if "fork" in kinds else None)
                # Its shutdown waits for no batch. That of multiprocessing.Pool may for ever: it reads ten of
                # those that workers still write, and then asks for the lock under which they do.
                self._pool = ProcessPoolExecutor(self._num_workers, context, _begin, begin)
            self._is_remote = not thread_pool
            weakref.finalize(self, _end, self._pool)

    def __iter__(self) -> Iterator[Any]:
        if self._pool is None:
            return (made_batch(n, self._batchify_fn, self._dataset) for n in self._batch_sampler)
        return self._ahead()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def refresh(self) -> None:
        """Nothing to do: each epoch asks its workers anew. MXNet's name, as is `clean`."""

    def clean(self) -> None:
        """Nothing to do: workers keep no batch of an epoch that has ended."""

    def _ahead(self) -> Iterator[Any]:
        """Batches in order, of which some are being made."""
        pool = self._pool
        assert pool is not None
        waiting: deque[Any] = deque()
        numbers = iter(self._batch_sampler)
        more = True
        while more or waiting:
            while more and len(waiting) < self._prefetch:
                asked = next(numbers, None)
                if asked is None:
                    more = False
                elif self._is_remote:
                    waiting.append(self._asked(pool, _remote_batch, asked))
                else:
                    waiting.append(self._asked(pool, made_batch, asked, self._batchify_fn, self._dataset))
            if waiting:
                yield self._got(waiting.popleft())

    @staticmethod
    def _asked(pool: Executor, make: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            # Python 3.12 warns of locks that threads hold in a fork; mxlite's are open there, see
            # `core/process/forks.py`. The first call forks the workers.
            warnings.simplefilter("ignore", DeprecationWarning)
            return pool.submit(make, *arguments)

    def _got(self, result: Any) -> Any:
        try:
            return result.result(self._timeout)
        except TimeoutError:
            if result.done():  # the sample's own
                raise
            raise StateError(
                f"DataLoader: no worker gave a batch within {self._timeout} seconds. A sample may take too "
                f"long (timeout=)."
            ) from None
        except BrokenProcessPool:
            raise StateError(
                "DataLoader: a worker process ended, as one does when memory runs out (num_workers=). Make "
                "another loader."
            ) from None


_mine: tuple[Any, Any] | None = None
"""Data set and batchify_fn of this worker process."""


def _begin(dataset: Any, make: Any) -> None:
    global _mine
    _mine = dataset, make
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent has ended, also where that could not say so (`os._exit`, a signal)."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A pipe's end. Workers that were forked later hold its other end, too: the last one ends first.
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _remote_batch(numbers: list[int]) -> Any:
    assert _mine is not None
    dataset, make = _mine
    return made_batch(numbers, make, dataset)


def _end(pool: Executor) -> None:
    pool.shutdown(wait=False, cancel_futures=True)
