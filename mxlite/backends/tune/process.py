"""One worker process, seen from the process that tunes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from time import monotonic
from typing import Any

from ...core.errors import MXLiteError
from .space import Schedule
from .task import Task

START_S = 120.0  # an import on a busy machine


class Worker:
    """A process that builds and times on `cores`; started when it is first asked, and again after it died.

    `busy` is what it works on. `deadline`, of `monotonic`, is when that takes too long.
    """

    module = "mxlite.backends.tune.worker"

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)
        self.busy: Any = None
        self.deadline = 0.0
        self.pipe: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._task: Task | None = None

    def start(self) -> None:
        """Start the process, if it is not there. Raises MXLiteError if it cannot begin."""
        if self.pipe is not None:
            return
        own, other = Pipe()
        with other:
            words = [sys.executable, "-m", self.module, str(other.fileno()), ",".join(map(str, self.cores))]
            nowhere = subprocess.DEVNULL
            self._process = subprocess.Popen(
                words,
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
                pass_fds=(other.fileno(),),
                start_new_session=True,
            )
        self.pipe, self._task = own, None
        try:
            ready = own.poll(START_S) and own.recv_bytes()
        except (EOFError, OSError):
            ready = False
        if not ready:
            self.stop()
            raise MXLiteError(
                f"A process for measurements did not start within {START_S:g} s: {' '.join(words)}."
            )

    def ask(self, what: str, task: Task, schedule: Schedule, limit_s: float, busy: Any) -> None:
        """Ask for a `build` or a `time` of a schedule within so many seconds; the answer comes by `pipe`."""
        self.start()
        assert self.pipe is not None
        packed = None if task is self._task else task.packed()
        self._task, self.busy, self.deadline = task, busy, monotonic() + limit_s
        with suppress(OSError):  # it has died: the answer will say so
            self.pipe.send_bytes(pickle.dumps((what, packed, schedule.row())))

    def answer(self) -> tuple[str, Any]:
        """Its answer, when `pipe` is ready: ("done", result), or ("failed", why); it is free then."""
        assert self.pipe is not None
        self.busy = None
        try:
            found: tuple[str, Any] = pickle.loads(self.pipe.recv_bytes())
            return found
        except (EOFError, OSError):
            process = self._process
            self.stop()
            code = None if process is None else process.returncode
            return "failed", f"crash: the process ended with {code}"

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.busy = None
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)  # a closed pipe ends one that is idle
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None


def cores_here() -> list[int]:
    """Numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
