"""OpenMP's threads: their number in a kernel, which is fixed when it is created, and how long they spin."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

from ....core import config
from ....core.errors import MXLiteError
from .contention import Contention, LIBRARY

_threads: int | None = None


class _Here(threading.local):
    """`threads`: number for kernels that this thread creates or runs at present; None: the global number.

    `contention`: how often this thread is preempted meanwhile.
    """

    threads: int | None = None

    def __init__(self) -> None:
        self.contention = Contention()


here = _Here()


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


# Spin time of OpenMP threads before they sleep.
#
# A team's threads wait for each other at every kernel. libgomp lets them spin 300,000 times, which is longer
# than the time slice that another process gets on a core. So where cores are shared, a thread whose partner
# was preempted spins through its own slice, is then preempted as well, and the partner spins for it: two busy
# processes on two cores made the step of a small network 20 times as long. Sleeping at once makes it twice as
# long on an idle machine, as waking takes longer than most kernels wait. SPINS are tenths of a millisecond:
# several times the wake-up time, and a small part of a slice. `benchmarks/busy.py` measures both.
#
# libgomp reads its settings when it is loaded, and only from the environment. The number is set there only
# while that happens, invisible to `os.environ` and to processes that are started later. A user's setting has
# precedence, and a libgomp that was loaded before (PyTorch brings one) is left alone.

SPINS = 2_000
_NAME = b"GOMP_SPINCOUNT"


@contextmanager
def loading() -> Iterator[None]:
    """Context in which a first load of libgomp in this process gets threads that soon sleep."""
    if not sys.platform.startswith("linux") or config.openmp_waits() or _is_loaded():
        yield
        return
    system = ctypes.PyDLL(None)  # holds the GIL, which keeps other threads of Python out
    system.setenv(_NAME, str(SPINS).encode(), 1)
    try:
        yield
    finally:
        system.unsetenv(_NAME)


def _is_loaded() -> bool:
    try:
        ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
