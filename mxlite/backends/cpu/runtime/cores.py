"""Sharing of the cores between thread pools.

numpy's OpenBLAS has a pool of threads of its own, and while these wait they take the cores from OpenMP's:
alternating between the two is several times slower than either alone. So while kernels of oneDNN or
of generated code run, OpenBLAS has one thread; and as such a kernel has all cores, the segments of a program
that has some of them run one at a time. A program of only reference kernels leaves everything as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from ...base import ChosenKernel
from ..onednn import loaded, Run
from ..onednn.primitive import Calls
from . import blas
from .threads import here, num_threads


def prepare() -> None:
    """Prepare for a program to be bound: engine workers and threads of OpenBLAS share the cores."""
    blas.share_cores()


class running:
    """Context `with running(n):` in which this thread creates, connects or runs kernels with `n` threads.

    OpenBLAS has one thread meanwhile. Afterwards everything is restored, OpenMP's number of threads too,
    since PyTorch may be using the same library.
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


def with_threads(kernel: ChosenKernel, threads: int) -> ChosenKernel:
    """`kernel`, chosen for so many threads, for programs that run with another number: it is connected inside
    `running(threads)`, and each of its calls sets and restores OpenMP's number of threads.
    """

    def link(run: Callable[..., None], xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
        around = num_threads()
        with running(threads):
            made: Run = kernel.link(run, xp, a, *inputs, **rest)
        lib = loaded()
        words = [] if lib is None else [lib.threads_call(n) for n in (threads, around)]
        if not words or words[0] is None or words[1] is None:
            return made
        return Calls((words[0], *(made if isinstance(made, Calls) else (made,)), words[1]))

    return replace(kernel, link=link)


def in_turn(threads: int) -> bool:
    """True if two kernels of so many threads would compete for the cores."""
    return threads > 1
