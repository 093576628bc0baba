"""The communicator of this process: alone until it joins the job that it was started in."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.errors import StateError
from ..core.process import forks
from ..engine import get_engine, Var
from .communicator import Alone, Communicator

if TYPE_CHECKING:
    from .heartbeat import Heartbeat

WIRE = Var("messages among ranks")
"""Written by every operation that calls the communicator, so that they run in the order of push: all ranks
must call it in one order."""

_lock = forks.lock()
_world: Communicator = Alone()
_owner = os.getpid()


def current() -> Communicator:
    """The communicator of this process. Raises StateError in a forked child of a rank, which is none."""
    if _world.size > 1 and os.getpid() != _owner:
        raise StateError(
            f"Process {os.getpid()} was forked by rank {_world.rank}, process {_owner}: only that one can "
            f"send messages to other ranks."
        )
    return _world


def join() -> Communicator:
    """Join the job of processes that mpiexec, srun or `mxlite.launch` has started; once, then the same again.

    From then on an exception that nobody catches ends the whole job, and so does a rank that stays silent;
    see `heartbeat.py`. Raises MXLiteError where there is a job, but no package that can take part in it.
    """
    global _world, _owner
    with _lock:
        if isinstance(_world, Alone):
            from .heartbeat import Heartbeat
            from .mpi import MPICommunicator

            joined = MPICommunicator.joined()
            if isinstance(joined, MPICommunicator) and joined.size > 1:
                _world, _owner = joined, os.getpid()
                heartbeat = Heartbeat(joined)
                heartbeat.start()
                atexit.register(_leave, heartbeat)
    return current()


def _leave(heartbeat: Heartbeat) -> None:
    """End as a rank should: others hear of it when this one has sent all that it was to send."""
    with suppress(Exception):  # a failure that nobody looks at ends no program
        get_engine().wait_all()
        for settle in heartbeat.comm.devices:
            settle()
    heartbeat.stop()
    heartbeat.comm.leave()
