"""The heartbeat between ranks: a job with a rank that failed or fell silent ends, and says why.

MPI itself waits for ever where a rank has raised an exception or was stopped. So each rank tells the next one
twice a second that it is alive, and in which step; a rank from which nothing comes for too long ends the job.
An exception that nobody catches ends it as well, with the rank and the step in front of the traceback.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType

from ..core import config
from .communicator import PATIENCE_S
from .mpi import MPICommunicator

BEAT_S = 0.5
NAPS = 10
"""Parts of that time, after each of which the thread looks if it is over."""

STOPPED_S = 3.0
"""Seconds of silence after which a process of the same machine is looked at: if it was stopped or is dead,
that is the end. One that is merely busy has the time of `config.rank_silence`."""

_ALIVE, _GOODBYE = 0, 1  # what a message says, besides the step and the number of messages begun


class Heartbeat:
    """The thread that tells the next rank that this one is alive, and listens to the rank before."""

    def __init__(self, comm: MPICommunicator) -> None:
        self.comm = comm
        self._ring = comm.ring()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="mxlite heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; from now on an uncaught exception ends the job."""
        sys.excepthook = self._failed
        self._thread.start()

    def stop(self) -> None:
        """Tell the next rank that this one ends as it should, and stop."""
        if not self._over:
            self._over = True
            self._thread.join()
            self._ring.send(_GOODBYE, self.comm.step, self.comm.begun)

    def end_job(self, why: str, status: int = 1) -> None:
        """Print the reason and end all ranks."""
        print(f"mxlite: {why}", file=sys.stderr, flush=True)
        self.comm.abort(status)

    def _failed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        self.end_job(f"rank {self.comm.rank} failed in step {self.comm.step}. The job ends.\n{text}")

    def _rest(self) -> bool:
        """Sleep until it is time to send. False if it is over."""
        for _ in range(NAPS):
            if self._over:
                break
            time.sleep(BEAT_S / NAPS)
        return not self._over

    def _run(self) -> None:
        heard, step = time.monotonic(), 0
        before, limit = self._ring.before, config.rank_silence()
        on_this_machine = self._ring.hosts[before] == self._ring.hosts[self.comm.rank]
        process = self._ring.processes[before]
        last, late = heard, 0.0
        while self._rest():
            self._ring.send(_ALIVE, self.comm.step, self.comm.begun)
            now, message = time.monotonic(), self._ring.received()
            # Time in which this thread could not listen does not count, as that of a stopped job.
            heard += max(0.0, now - last - BEAT_S)
            last = now
            if message is not None:
                heard = now
                if message[0] == _GOODBYE:
                    self.comm.missing = f"rank {before} has ended after step {message[1]}"
                    limit, step = 0, message[1]
                else:
                    step = message[1]
                    self.comm.heard = before, message[2]
                continue
            if self.comm.missing and self.comm.devices and self.comm.step > step:
                late = late or now
                if now - late > PATIENCE_S:  # nobody polls for a device, which would wait for ever
                    self.end_job(
                        f"{self.comm.missing}, but rank {self.comm.rank} is in step {self.comm.step}, and "
                        "its GPU waits for it: all ranks need the same number of steps, and so of batches."
                    )
            silent = now - heard
            is_dead = silent > STOPPED_S and on_this_machine and not is_running(process)
            if limit and (silent > limit or is_dead):
                what = "is stopped or dead" if is_dead else f"has been silent for {silent:.0f} s"
                self.end_job(
                    f"rank {before} {what}; the last it told was that it is in step {step}. Rank "
                    f"{self.comm.rank} is in step {self.comm.step}. The job ends."
                )


def is_running(process: int) -> bool:
    """False if a process of this machine was stopped or is gone; True where that cannot be known."""
    if not Path("/proc/self/stat").exists():
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "TtZX"
