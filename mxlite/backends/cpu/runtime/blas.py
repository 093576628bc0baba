"""Threads of the BLAS inside numpy.

OpenBLAS starts as many threads as there are cores, for every product, and lets them spin while they wait for
each other. Beside engine workers that are busy themselves this is ruinous (a training step of many small
products was seen to take ten times as long), so workers and BLAS threads share the cores. And while
multithreaded kernels run, OpenBLAS gets one thread: the two pools would compete for the cores.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from collections.abc import Callable

import numpy as np

from ....core import config
from ....core.process.forks import Together

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


@functools.cache
def share_cores() -> None:
    """Give BLAS `config.blas_threads()` threads, once; do nothing if the user or another BLAS decides."""
    threads = config.blas_threads()
    if threads is not None:
        set_blas_threads(threads)


def set_blas_threads(threads: int) -> bool:
    """Set the number of threads of numpy's own OpenBLAS; False if numpy has another BLAS."""
    found = _functions()
    if found is None:
        return False
    with _alone.lock:
        if _alone.anybody:
            global _before
            _before = threads
        else:
            found[0](threads)
    return True


def blas_threads() -> int | None:
    """Current number of threads of numpy's own OpenBLAS; None if numpy has another BLAS."""
    found = _functions()
    return None if found is None else found[1]()


_before = 1  # the number to restore


def hold_back() -> None:
    """Give OpenBLAS one thread until this thread has called `let_go` as often as this."""
    if _functions() is not None:
        _alone.enter()


def let_go() -> None:
    """End the effect of one `hold_back`."""
    if _functions() is not None:
        _alone.leave()


def _begin() -> None:
    global _before
    found = _functions()
    assert found is not None
    _before = found[1]()
    if _before != 1:
        found[0](1)


def _end() -> None:
    found = _functions()
    assert found is not None
    if _before != 1:
        found[0](_before)


_alone = Together(_begin, _end)


@functools.cache
def _functions() -> tuple[Callable[[int], object], Callable[[], int]] | None:
    """OpenBLAS's setter and getter in the library of numpy's wheel, which numpy has loaded."""
    package = os.path.dirname(np.__file__)
    for pattern in (f"{package}.libs/*openblas*", f"{package}/.dylibs/*openblas*"):
        for path in sorted(glob.glob(pattern)):
            try:
                library = ctypes.PyDLL(path)  # both only get or set a number: the GIL may be kept
            except OSError:
                continue
            for name in _NAMES:
                setter = getattr(library, name.format("set"), None)
                getter = getattr(library, name.format("get"), None)
                if setter is not None and getter is not None:
                    setter.argtypes, setter.restype = [ctypes.c_int], None
                    getter.argtypes, getter.restype = [], ctypes.c_int
                    return setter, getter
    return None
