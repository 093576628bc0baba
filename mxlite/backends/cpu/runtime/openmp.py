"""Spin time of OpenMP threads before they sleep.

A team's threads wait for each other at every kernel. libgomp lets them spin 300,000 times, which is longer
than the time slice that another process gets on a core. So where cores are shared, a thread whose partner was
preempted spins through its own slice, is then preempted as well, and the partner spins for it: two busy
processes on two cores made the step of a small network 20 times as long. Sleeping at once makes it twice as
long on an idle machine, as waking takes longer than most kernels wait. SPINS are tenths of a millisecond:
several times the wake-up time, and a small part of a slice. `benchmarks/busy.py` measures both.

libgomp reads its settings when it is loaded, and only from the environment. The number is set there
only while that happens, invisible to `os.environ` and to processes that are started later. A user's setting
has precedence, and a libgomp that was loaded before (PyTorch brings one) is left alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ....core import config

SPINS = 2_000
LIBRARY = "libgomp.so.1"
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
