"""Agreement of ranks: texts that have to be the same on all, compared before it matters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .communicator import Communicator

_DIGEST = 16  # bytes
_SHOWN = 1024
"""Bytes, at most, of a text that another rank is shown."""


def dissenters(comm: Communicator, text: str) -> list[int]:
    """The ranks whose `text` differs from that of most ranks; every rank calls it, and gets the same result.

    If two texts are equally frequent, that of the lower rank counts as right.
    """
    own = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest(), np.uint8)
    digests = [row.tobytes() for row in gathered(comm, own)]
    usual = max(digests, key=digests.count)
    return [rank for rank, digest in enumerate(digests) if digest != usual]


def gathered(comm: Communicator, own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(ranks, ...): what each rank gives as `own`, a small array, of one shape and type on all."""
    every = np.zeros((comm.size, *own.shape), own.dtype)
    every[comm.rank] = own
    comm.wait(comm.all_gather(every.reshape(-1).view(np.uint8), [own.nbytes] * comm.size))
    return every


def shown(comm: Communicator, text: str, rank: int) -> str:
    """The beginning of the `text` that rank `rank` has; every rank calls it."""
    cut = np.zeros(_SHOWN, np.uint8)
    own = text.encode()[:_SHOWN]
    cut[: len(own)] = np.frombuffer(own, np.uint8)
    comm.wait(comm.broadcast(cut, rank))
    return cut.tobytes().rstrip(b"\0").decode(errors="ignore")


def in_words(ranks: Sequence[int]) -> str:
    """`rank 3`, or `ranks 1, 2 and 5`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
