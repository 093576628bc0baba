"""What all ranks must have in common, compared before it matters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from .communicator import Communicator

_DIGEST = 16  # bytes


def dissenters(comm: Communicator, text: str) -> list[int]:
    """The ranks whose `text` differs from that of most ranks; every rank calls it, and gets the same result.

    Where two texts are equally frequent, that of the lower rank counts as right.
    """
    own = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest(), np.uint8)
    every = np.zeros((comm.size, _DIGEST), np.uint8)
    every[comm.rank] = own
    comm.wait(comm.all_gather(every.reshape(-1), [_DIGEST] * comm.size))
    digests = [row.tobytes() for row in every]
    usual = max(digests, key=digests.count)
    return [rank for rank, digest in enumerate(digests) if digest != usual]


def in_words(ranks: Sequence[int]) -> str:
    """`rank 3`, or `ranks 1, 2 and 5`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
