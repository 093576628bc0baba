"""Batches from a pool of processes that a program made itself: the iterator from which loaders derive theirs.

GluonCV's loaders, for one, start a `multiprocessing.Pool` and override `_push_next`, which asks it for a
batch. The names of attributes are MXNet's.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...core import StateError


class MultiWorkerIter:
    """Batches in the order of `batch_sampler`, `prefetch` of which are asked for ahead.

    worker_pool: has `apply_async`, as `multiprocessing.Pool` has.  worker_fn(numbers, batchify_fn, dataset)
    runs in a worker and returns a batch, or its pickle.  timeout: seconds to wait for a batch; StateError
    after that.  pin_memory and pin_device_id have no effect.
    """

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Callable[[list[Any]], Any],
        batch_sampler: Iterable[list[int]],
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Callable[..., Any] | None = None,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
    ) -> None:
        self._worker_pool, self._worker_fn = worker_pool, worker_fn or made_batch
        self._batchify_fn, self._batch_sampler = batchify_fn, batch_sampler
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._dataset, self._data_loader, self._timeout = dataset, data_loader, timeout
        self._data_buffer: dict[int, Any] = {}
        self._rcvd_idx = self._sent_idx = 0
        self._iter = iter(batch_sampler)
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return self

    def _push_next(self) -> None:
        """Ask the pool for the next batch, if there is one."""
        numbers = next(self._iter, None)
        if numbers is not None:
            call = (numbers, self._batchify_fn, self._dataset)
            self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, call)
            self._sent_idx += 1

    def __next__(self) -> Any:
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        waited = self._data_buffer.pop(self._rcvd_idx)
        self._rcvd_idx += 1
        waited.wait(self._timeout)
        if not waited.ready():
            raise StateError(
                f"DataLoader: no worker gave batch {self._rcvd_idx - 1} within {self._timeout} seconds."
            )
        made = waited.get()
        # Our own workers pickled it: nothing of it comes from a file.
        return pickle.load(io.BytesIO(made)) if isinstance(made, bytes) else made

    next = __next__


def made_batch(numbers: list[int], batchify_fn: Callable[[list[Any]], Any], dataset: Any) -> Any:
    """A batch of those samples."""
    return batchify_fn([dataset[i] for i in numbers])
