"""The number of threads that a kernel may use: `mx.set_num_threads`, `mx.get_num_threads`."""

from __future__ import annotations

from ..backends.cpu.runtime import threads
from .calls.plan import forget_plans


def get_num_threads() -> int:
    """Threads that a kernel of a program bound from now on may use.

    As many as the process may use cores, unless `set_num_threads` or MXLITE_NUM_THREADS has said otherwise.
    """
    return threads.num_threads()


def set_num_threads(count: int) -> int:
    """Let each kernel of oneDNN or of generated code use `count` threads; returns the number before.

    That holds for programs bound, and operations on arrays called, from now on; bound programs keep their
    number. numpy's own matrix products have MXLITE_BLAS_THREADS. Raises MXLiteError for anything but a whole
    number from 1 to 1024.
    """
    before = threads.set_num_threads(count)
    forget_plans()
    return before
