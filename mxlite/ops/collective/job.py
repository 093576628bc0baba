"""The job for which a step was planned."""

from __future__ import annotations

from ...comm import Collectives, current
from ...core.errors import StateError


def of_job(ranks: int, collectives: Collectives | None = None) -> Collectives:
    """The collectives of a job of so many ranks: these, or those of this process. Raises StateError."""
    comm = collectives or current()
    if comm.size != ranks:
        raise StateError(f"This step was planned for {ranks} ranks, but the job has {comm.size}.")
    return comm
