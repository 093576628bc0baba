"""This process as a rank of a job."""

from __future__ import annotations

from ..comm import current, dissenters, in_words, join, shown
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


def local_rank() -> int:
    """The number of this process among those on its machine, from 0: `mx.gpu(mx.dist.local_rank())`."""
    return current().local_rank


def size() -> int:
    """The number of processes of the job."""
    return current().size


def differing(text: str) -> list[int]:
    """The ranks whose `text` differs from that of most; every rank calls it at the same point of the program."""
    from .exchange import barrier

    if current().size == 1:
        return []
    barrier()  # nothing else is sent meanwhile
    return dissenters(current(), text)


def agree(what: str, *texts: str) -> None:
    """Raise BindError on every rank unless `texts` are the same on all. `what` names them in the error, which
    shows those that differ.

    All ranks call it at the same point of the program.
    """
    comm, text = current(), "; ".join(texts)
    if others := differing(text):
        usual = next(rank for rank in range(comm.size) if rank not in others)
        theirs, right = (shown(comm, text, rank).split("; ") for rank in (others[0], usual))
        differ = [(a, b) for a, b in zip(theirs, right) if a != b] or [(theirs[-1], right[-1])]
        first, second = ("; ".join(row) for row in zip(*differ))
        raise BindError(
            f"{what} of {in_words(others)} differs from that of the other ranks. "
            f"Rank {others[0]}: {first}. Rank {usual}: {second}."
        )
