"""Jobs of several ranks, run by mpiexec, each under a hard limit of time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not Path("/proc/self/environ").exists(),
    reason="ranks need mpi4py, and Linux's /proc to find those left behind; pip install 'mxlite[mpi]'",
)

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 240.0
_MARK = "MXLITE_TEST_JOB"


@dataclass(frozen=True)
class Ended:
    """A job that has ended. `left` are the processes of it that were still there 2 s later."""

    status: int
    out: str
    err: str
    left: int


class Job:
    """Ranks that run one of PROGRAMS, or the path of another program."""

    def __init__(self, program: str | Path, ranks: int, *args: str, **settings: str) -> None:
        path = program if isinstance(program, Path) else PROGRAMS / program
        self._mark = uuid.uuid4().hex
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), _MARK: self._mark} | settings
        line = [sys.executable, "-m", "mxlite.launch", "-n", str(ranks), str(path), *args]
        self._process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process of mpiexec."""
        return self._process.pid

    def processes(self) -> list[psutil.Process]:
        """All processes of the job: mpiexec's and the ranks, known by a variable of their environment."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end of the job. One that takes longer than `limit_s` seconds is killed, and fails."""
        try:
            out, err = self._process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._kill()
            out, err = self._process.communicate()
            pytest.fail(f"The job runs still after {limit_s} s.\n{out}\n{err}")
        until = time.monotonic() + 2
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        if left:
            self._kill()
        return Ended(self._process.returncode, out, err, len(left))

    def _kill(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()


def run(program: str, ranks: int, *args: str, **settings: str) -> str:
    """What a job prints that has to end well."""
    ended = Job(program, ranks, *args, **settings).end()
    assert ended.status == 0 and not ended.left, f"status {ended.status}\n{ended.out}\n{ended.err}"
    return ended.out
