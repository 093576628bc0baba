"""The communicator of MPI, through mpi4py: MPICH, Open MPI, Intel MPI, or what the system has.

Operations move bytes on arrays where they lie, and are nonblocking: see "Nonblocking Collective Operations"
in the MPI standard, version 4.1, chapter 6.12. Bytes, because no MPI that we know sums bfloat16; see
`ordered_sum.py` for sums.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..core import config
from ..core.errors import MXLiteError
from . import job_table
from .communicator import Alone, Communicator, Request

PARTING_S = 0.2
"""Seconds that a launcher has to pass on what was printed, before it hears that all is to end."""


class _Pending:
    """A request of mpi4py, which keeps the arrays of its operation."""

    __slots__ = ("_request",)

    def __init__(self, request: Any) -> None:
        self._request = request

    def test(self) -> bool:
        return bool(self._request.Test())


class MPICommunicator(Communicator):
    """All processes of an MPI job, by a communicator of mxlite's own."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._world = mpi.COMM_WORLD.Dup()
        self._meetings = mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._world.rank, self._world.size
        here = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
        self.local_rank = here.rank
        here.Free()
        self._row = job_table.row_of(config.job_table(), self.rank, os.getpid())
        self.library = str(mpi.Get_library_version()).partition("\n")[0].rstrip("\0 ")

    @staticmethod
    def joined() -> Communicator:
        """The job's communicator, or that of one process if no launcher has started this one.

        Raises MXLiteError without mpi4py, or where MPI cannot be called from several threads.
        """
        if not config.is_rank():
            return Alone()
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # RuntimeError: no MPI library to load
            raise MXLiteError(
                f"This process is one of several that a launcher has started, but MPI cannot be used "
                f"({error}). Install it with: pip install 'mxlite[mpi]'"
            ) from None
        if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
            raise MXLiteError(
                "MPI was initialised without MPI_THREAD_MULTIPLE, but mxlite's engine sends messages from "
                "its own threads. Do not set mpi4py.rc.thread_level, or build MPI with support for threads."
            )
        return MPICommunicator(MPI)

    @property
    def step(self) -> int:
        """Steps of training that this rank has begun."""
        return int(self._row[job_table.STEP])

    @step.setter
    def step(self, step: int) -> None:
        self._row[job_table.STEP] = step

    def leave(self) -> None:
        """Tell the launcher that this rank ends as it should."""
        self._row[job_table.STATE] = job_table.ENDED

    def all_to_all(self, send: Any, sent: Sequence[int], receive: Any, received: Sequence[int]) -> Request:
        self.begun += 1
        byte = self._mpi.BYTE
        parts = [send, (sent, _starts(sent)), byte], [receive, (received, _starts(received)), byte]
        return _Pending(self._world.Ialltoallv(*parts))

    def all_gather(self, array: Any, parts: Sequence[int]) -> Request:
        self.begun += 1
        spec = [array, (parts, _starts(parts)), self._mpi.BYTE]
        return _Pending(self._world.Iallgatherv(self._mpi.IN_PLACE, spec))

    def broadcast(self, array: Any, root: int) -> Request:
        self.begun += 1
        return _Pending(self._world.Ibcast([array, self._mpi.BYTE], root))

    def barrier(self) -> Request:
        self.begun += 1
        return _Pending(self._world.Ibarrier())

    def meeting(self) -> Request:
        return _Pending(self._meetings.Ibarrier())

    def abort(self, status: int) -> None:
        self._row[job_table.STATE] = job_table.ABORTED
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(PARTING_S)
        self._mpi.COMM_WORLD.Abort(status)
        os._exit(status)

    def ring(self) -> Ring:
        """A channel from each rank to the next, beside the collective operations."""
        return Ring(self._mpi, self.rank, self.size)


class Ring:
    """Messages of a few numbers to the next rank, and those from the rank before."""

    NUMBERS = 3

    def __init__(self, mpi: Any, rank: int, size: int) -> None:
        self._mpi = mpi
        self._world = mpi.COMM_WORLD.Dup()
        self._to, self.before = (rank + 1) % size, (rank - 1) % size
        self._sent: list[tuple[Any, Any]] = []  # requests with their buffers, until they are complete
        places = self._world.allgather((socket.gethostname(), os.getpid()))
        self.hosts, self.processes = zip(*places)  # of all ranks

    def send(self, *numbers: int) -> None:
        """Send NUMBERS numbers. Does not wait."""
        buffer = np.array(numbers, np.int64)
        self._sent = [(r, b) for r, b in self._sent if not r.Test()]
        self._sent.append((self._world.Isend(buffer, self._to), buffer))

    def received(self) -> list[int] | None:
        """The last message that has come since the last call; None without one."""
        found = None
        while self._world.Iprobe(self.before):
            buffer = np.empty(self.NUMBERS, np.int64)
            self._world.Recv(buffer, self.before)
            found = buffer.tolist()
        return found


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts[:-1])]
