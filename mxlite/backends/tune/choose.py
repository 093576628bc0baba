"""Binding by records: a kernel with its schedule, and times that were measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..base import Backend, ChosenKernel, Request
from .records import Records
from .space import TaskSpace
from .task import device_key, task_key


class Chooser:
    """Chooses kernels for requests on a backend by `records`, which name schedules for `threads` threads.

    Where records know nothing, or a space has their schedule no longer, the backend chooses by itself.
    """

    def __init__(self, backend: Backend, records: Records, threads: int) -> None:
        self._backend, self._threads = backend, threads
        self._records = records if len(records) else None
        self._device = device_key(backend) if self._records else ""

    def threads(self, request: tuple[Any, ...]) -> int:
        """The most threads that a kernel for this request of `Backend.choose` is to have."""
        record = self._best(request)
        return self._threads if record is None else record.schedule.threads

    def kernel(self, request: tuple[Any, ...], threads: int) -> ChosenKernel:
        """The kernel for a request with so many threads, inside `running(threads)`."""
        record = self._best(request)
        if record is None:
            return self._timed(self._backend.choose(*request), request)
        schedule = replace(record.schedule, threads=threads)
        space = TaskSpace(self._backend, Request(*request), threads)
        found = space.kernel(schedule)
        return self._backend.choose(*request) if found is None else self._timed(found, request)

    def _timed(self, kernel: ChosenKernel, request: tuple[Any, ...]) -> ChosenKernel:
        if self._records is None:
            return kernel
        times = self._records.times(task_key(Request(*request), self._threads), self._device)
        return kernel if times is None else replace(kernel, measured=times)

    def _best(self, request: tuple[Any, ...]) -> Any:
        if self._records is None:
            return None
        record = self._records.best(task_key(Request(*request), self._threads), self._device)
        return record if record is not None and record.schedule.threads <= self._threads else None
