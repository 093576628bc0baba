"""Who gets the cores.

numpy's OpenBLAS has a pool of threads of its own, and while these wait they take the cores from OpenMP's:
the one alternating with the other is several times slower than either alone. So while kernels of oneDNN or
of generated code run, OpenBLAS has one thread; and as such a kernel has all cores, the segments of a program
that has some of them run one at a time. A program of reference kernels alone leaves everything as it is.
"""

from __future__ import annotations

from types import TracebackType

from . import blas
from .onednn import loaded
from .threads import here


def prepare() -> None:
    """Before a program is bound: engine workers and threads of OpenBLAS share the cores."""
    blas.share_cores()


class running:
    """`with running(n):` what this thread makes, connects or runs inside has `n` threads, and OpenBLAS one.

    Outside everything is as it was before, the number of OpenMP too: PyTorch may be using the same library.
    """

    __slots__ = ("before", "openmp", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __enter__(self) -> None:
        self.before, here.threads = here.threads, self.threads
        lib = loaded()
        self.openmp = None if lib is None else lib.use_threads(self.threads)
        blas.hold_back()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        blas.let_go()
        if self.openmp is not None and (lib := loaded()) is not None:
            lib.use_threads(self.openmp)
        here.threads = self.before


def in_turn(threads: int) -> bool:
    """Whether two kernels of so many threads would fight for the cores."""
    return threads > 1
