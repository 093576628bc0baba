"""This process as a rank of a job."""

from __future__ import annotations

from ..comm import current, dissenters, in_words, join
from ..core.errors import BindError


def init() -> None:
    """Join the job that a launcher has started this process in; without one it stays alone. See `comm.join`."""
    join()


def is_initialized() -> bool:
    """True if this process has others to talk to."""
    return current().size > 1


def rank() -> int:
    """The number of this process, from 0."""
    return current().rank


def size() -> int:
    """The number of processes of the job."""
    return current().size


def agree(what: str, text: str) -> None:
    """Raise BindError on every rank unless `text` is the same on all. `what` names it in the error.

    All ranks call it at the same point of the program.
    """
    from .exchange import barrier

    comm = current()
    if comm.size == 1:
        return
    barrier()  # nothing else is sent meanwhile
    others = dissenters(comm, text)
    if others:
        mine = f" This is rank {comm.rank}: {text}." if len(text) < 2000 else ""
        raise BindError(f"{what} of {in_words(others)} differs from that of the other ranks.{mine}")
