"""How long OpenMP's threads spin before they sleep."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from ....core import config
from ....core.process import forks

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

LIBRARY = "libgomp.so.1"
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


# Shorter spins while other processes compete for the cores.
#
# A thread that waits for the others of its team spins for a while before it sleeps. That is right while
# each of them has a core to itself. Where a core is shared with another process, its thread has to wait for
# it again and again, and the spins of the others are lost: DenseNet-121 beside two busy processes on two
# cores was seen to take 0.5 s a step and up to 11 s, and 0.2 s with threads that sleep almost at once.
#
# The time that a thread waited for a core although it could have run tells the two apart, however long it
# spins, and Linux counts it for each thread (`run_delay`, Documentation/scheduler/sched-stats.rst). For the
# thread that starts teams it was seen to be at most 0.03 of the time on an idle machine, and 0.17 to 0.7
# beside one to four busy processes. So this share is measured while kernels run.
#
# libgomp reads its number of spins when it is loaded. But while it has more threads than there are
# processors, it takes a much smaller one (`gomp_throttled_spin_count_var` in its source,
# config/linux/wait.h). So a thread with a sleeping team of its own shortens all spins for as long as it
# exists.

WINDOW_S = 0.02
"""Seconds of kernels for which the waiting is measured."""
MUCH, LITTLE = 0.1, 0.05
"""Shares of the time waited for a core above which spins become short, and below which they become long
again."""


class Contention:
    """The share of its time that one thread waits for a core while its teams run. Use it on that thread only.

    Spins are the same for all threads: what was measured last decides.
    """

    __slots__ = ("_before", "_seconds")

    def __init__(self) -> None:
        self._seconds, self._before = 0.0, waited_for_cores()

    def add(self, seconds: float, threads: int) -> None:
        """Account for kernels that ran so long with so many threads; after each window, decide on spins."""
        self._seconds += seconds
        if self._seconds < WINDOW_S:
            return
        now = waited_for_cores()
        share = (now - self._before) / self._seconds
        self._seconds, self._before = 0.0, now
        if share > MUCH and _is_adjustable(threads):
            _oversubscription.begin()
        elif share < LITTLE:
            _oversubscription.end()


def waited_for_cores() -> float:
    """Seconds that this thread could have run and had no core; 0 where the system does not say."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        return int(os.read(file, _LINE).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
    finally:
        os.close(file)


_LINE = 128  # bytes: three numbers, the second of which are nanoseconds


def _is_adjustable(threads: int) -> bool:
    """True if one thread more is enough, and can be had: libgomp ends the process if it cannot start one."""
    import resource

    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return (
        not config.openmp_waits()
        and threads >= len(os.sched_getaffinity(0))
        and all(limit == resource.RLIM_INFINITY for limit in limits)
    )


class _Oversubscription:
    """More OpenMP threads than processors: by a thread with a sleeping team of its own, if there is one."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._stop: SimpleQueue[None] | None = None  # what is put there ends the thread
        forks.in_child(self._forget)

    def begin(self) -> None:
        """Start the thread if there is none; nothing happens if the system refuses."""
        with self._lock:
            if self._stop is None:
                stop: SimpleQueue[None] = SimpleQueue()
                try:
                    library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD)
                    threading.Thread(
                        target=_sleep, args=(library, stop), name="mxlite-sleeping-team", daemon=True
                    ).start()
                except (OSError, RuntimeError):
                    return
                self._stop = stop

    def end(self) -> None:
        """End the thread if there is one."""
        with self._lock:
            if self._stop is not None:
                self._stop.put(None)
                self._stop = None

    def _forget(self) -> None:
        self._stop = None


_oversubscription = _Oversubscription()


def _sleep(library: Any, stop: SimpleQueue[None]) -> None:
    nothing = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
    library.GOMP_parallel(nothing, None, ctypes.c_uint(2), ctypes.c_uint(0))
    stop.get()
