"""The number of OpenMP's threads in a kernel, which is fixed when it is created."""

from __future__ import annotations

import threading
from numbers import Integral

from ....core import config
from ....core.errors import MXLiteError
from .spins import Contention

_threads: int | None = None


def num_threads() -> int:
    """Number of threads of kernels created from now on."""
    if here.threads is not None:
        return here.threads
    return config.num_threads() if _threads is None else _threads


def set_num_threads(threads: int) -> int:
    """Use `threads` threads in each kernel created from now on; returns the number before.

    Raises MXLiteError for a number below 1 or above 1024.
    """
    global _threads
    whole = isinstance(threads, Integral) and not isinstance(threads, bool)
    if not whole or not 1 <= threads <= config.MOST_THREADS:
        raise MXLiteError(
            f"set_num_threads wants a whole number from 1 to {config.MOST_THREADS}, got {threads!r}."
        )
    before, _threads = num_threads(), int(threads)
    return before


class _Here(threading.local):
    """`threads`: number for kernels that this thread creates or runs at present; None: the global number.

    `contention`: how much of its time this thread waits for a core meanwhile.
    """

    threads: int | None = None

    def __init__(self) -> None:
        self.contention = Contention()


here = _Here()
