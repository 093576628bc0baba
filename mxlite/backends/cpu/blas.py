"""Threads of the BLAS inside numpy.

OpenBLAS starts as many threads as there are cores, for every product, and lets them spin while they wait for
each other. Next to engine workers that are busy themselves this is ruinous (a training step of many small
products was seen to take ten times as long), so workers and BLAS threads share the cores.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from collections.abc import Callable

import numpy as np

from ...core import config

_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


@functools.cache
def share_cores() -> None:
    """Give BLAS `config.blas_threads()` threads, once; nothing where the user or another BLAS decides."""
    threads = config.blas_threads()
    if threads is not None:
        set_blas_threads(threads)


def set_blas_threads(threads: int) -> bool:
    """Set the number of threads of numpy's own OpenBLAS; False if numpy has another BLAS."""
    setter = _setter()
    if setter is None:
        return False
    setter(threads)
    return True


@functools.cache
def _setter() -> Callable[[int], object] | None:
    """OpenBLAS's function in the library that numpy's wheel brings, loaded already by numpy."""
    package = os.path.dirname(np.__file__)
    for pattern in (f"{package}.libs/*openblas*", f"{package}/.dylibs/*openblas*"):
        for path in sorted(glob.glob(pattern)):
            try:
                library = ctypes.CDLL(path)
            except OSError:
                continue
            for name in _SETTERS:
                function = getattr(library, name, None)
                if function is not None:
                    function.argtypes, function.restype = [ctypes.c_int], None
                    return function
    return None
