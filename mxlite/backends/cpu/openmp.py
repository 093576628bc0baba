"""How long the threads of OpenMP look for work before they sleep.

A team's threads wait for each other at every kernel. libgomp lets them spin 300,000 times, which is longer
than the slice of a core that another process gets. So where cores are shared, a thread whose partner has lost
its core spins away its own slice, then loses its core as well, and the partner spins for it: two busy
processes on two cores made the step of a small network 20 times as long. To sleep at once makes it twice as
long on an idle machine, as waking takes longer than most kernels wait. SPINS are tenths of a millisecond:
several times what waking takes, and a small part of a slice. `benchmarks/busy.py` measures both.

libgomp reads its settings when it is loaded, from the environment and nowhere else. There the number stands
only while that happens, unseen by `os.environ` and by processes that are started later. What the user says
holds, and a libgomp that somebody else has loaded before (PyTorch brings one) stays as it is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ...core import config

SPINS = 2_000
LIBRARY = "libgomp.so.1"
_NAME = b"GOMP_SPINCOUNT"


@contextmanager
def loading() -> Iterator[None]:
    """Inside, who loads libgomp for the first time in this process gets one whose threads soon sleep."""
    if not sys.platform.startswith("linux") or config.openmp_waits() or _is_loaded():
        yield
        return
    system = ctypes.PyDLL(None)  # keeps the interpreter's lock: no other thread of Python looks meanwhile
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
