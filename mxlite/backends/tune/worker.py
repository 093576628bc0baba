"""A process that builds and times schedules for another one: whatever a kernel does to it, the other goes on.

    python -m mxlite.backends.tune.worker FD CORES

It reads from the pipe that it inherits as FD and answers there; the other end is a process of ours
(`process.py`). CORES are those that it may use, as `0,1`.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ...core.device import cpu
from ...core.machine_code import native
from ...ops.random.philox import RandomStream
from ..base import Backend, ChosenKernel
from ..call import bind_call
from ..registry import backend_of
from ..timed_call import cold_and_warm, fill, Flush
from .space import Schedule, TaskSpace
from .task import Task

FLUSH_BYTES = 64 * 2**20
CLOSE = {"float64": 1e-8, "float32": 1e-3}  # relative to the largest number of an array; 16-bit types: 3e-2


class Timed(NamedTuple):
    """Seconds of a call in the cache and out of it, a digest of its machine code, how long all took."""

    seconds: float
    cold: float
    digest: str
    wall_s: float


class Wrong(Exception):
    """A schedule whose results are not those of the default one, or which the space has not."""


class Bench:
    """One task on arrays of its own."""

    def __init__(self, task: Task, backend: Backend) -> None:
        self.task, self.backend = task, backend
        self.space: TaskSpace = task.space(backend)
        kinds = [*task.inputs, *task.outputs]
        self._arrays = [None if k is None else backend.array(*k) for k in kinds]
        self._flush = Flush(FLUSH_BYTES, task.threads)
        self._right: list[Any] | None = None
        self._digests: dict[Schedule, str] = {}

    def kernel(self, schedule: Schedule) -> ChosenKernel:
        found = self.space.kernel(schedule)
        if found is None:
            raise Wrong(f"the space has no schedule {schedule}")
        return found

    def connected(self, kernel: ChosenKernel) -> Callable[[], None]:
        """The call of a kernel on these arrays, which compiles what it needs."""
        r, count = self.task.request, len(self.task.inputs)
        work = self.backend.empty(max(1, kernel.workspace))[: kernel.workspace]
        seeds = self.backend.seeds(np.array([1, 1], np.uint64))
        run = bind_call(
            kernel,
            self.backend.xp,
            r.op,
            r.attrs,
            self._arrays[:count],
            self._arrays[count:],
            work=work,
            rng=RandomStream(seeds, 0) if self.task.draws else None,
            train=r.train,
            shapes=(r.inputs, r.outputs),
        )

        def call(kept: Any = (work, seeds)) -> None:
            run()

        return call

    def build(self, schedule: Schedule) -> str:
        """Compile a schedule, for this process and by the cache on disk for others; a digest of the code."""
        with native.noted() as keys, self.backend.running(self.task.threads):
            self.connected(self.kernel(schedule))
        if keys:  # a kernel that is connected again loads nothing
            self._digests[schedule] = hashlib.sha256("".join(sorted(set(keys))).encode()).hexdigest()[:16]
        return self._digests.get(schedule, "")

    def time(self, schedule: Schedule) -> Timed:
        """Check what a schedule computes, then time it."""
        start = perf_counter()
        digest = self.build(schedule)
        run = self.check(schedule)
        with self.backend.running(self.task.threads), np.errstate(all="ignore"):
            cold, warm = cold_and_warm(self.backend, self.task.threads, run, self._flush)
        return Timed(max(1e-9, warm), max(1e-9, cold), digest, perf_counter() - start)

    def check(self, schedule: Schedule) -> Callable[[], None]:
        """The call of a schedule. Raises Wrong if it computes something else than the default one."""
        with self.backend.running(self.task.threads), np.errstate(all="ignore"):
            if self._right is None:
                self._right = self.results(self.connected(self.kernel(self.space.default)))
            run = self.connected(self.kernel(schedule))
            self._check(self.results(run))
        return run

    def results(self, run: Callable[[], None]) -> list[Any]:
        """All arrays after one run on fresh ones: a call may also write to its inputs."""
        for array in self._arrays:
            if array is not None:
                fill(self.backend, array)
        run()
        return [None if a is None else a.copy() for a in self._arrays]

    def _check(self, found: list[Any]) -> None:
        assert self._right is not None
        for i, (a, b) in enumerate(zip(found, self._right)):
            if a is None:
                continue
            x, y = a.astype(np.float64), b.astype(np.float64)
            if not np.array_equal(np.isfinite(x), np.isfinite(y)):
                raise Wrong(f"array {i} is not finite where the default schedule's is")
            x, y = x[np.isfinite(x)], y[np.isfinite(y)]
            largest = float(np.abs(y).max(initial=0.0))
            off = float(np.abs(x - y).max(initial=0.0))
            if off > CLOSE.get(a.dtype.name, 3e-2) * max(largest, 1e-30):
                raise Wrong(
                    f"array {i} differs by {off:.3g} from the default schedule's, up to {largest:.3g}"
                )


def main(fd: int, cores: list[int]) -> None:
    """Answer until the pipe is closed. A message is (what, packed task or None, schedule's row)."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    pipe = Connection(fd)
    backend = backend_of(cpu())
    backend.prepare()
    bench: Bench | None = None
    pipe.send_bytes(pickle.dumps(("ready", None)))
    while True:
        try:
            what, packed, row = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            if packed is not None:
                bench = Bench(Task.unpacked(packed), backend)
            schedule = Schedule.of(row)
            assert bench is not None and schedule is not None
            answer = "done", bench.build(schedule) if what == "build" else tuple(bench.time(schedule))
        except Exception as error:  # whatever a kernel does is an answer
            answer = "failed", f"{type(error).__name__}: {error}"[:500]
        pipe.send_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(c) for c in sys.argv[2].split(",") if c])
