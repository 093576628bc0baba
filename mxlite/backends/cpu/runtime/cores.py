"""Sharing of the cores between thread pools.

numpy's OpenBLAS has a pool of threads of its own, and while these wait they take the cores from OpenMP's:
alternating between the two is several times slower than either alone. So while kernels of oneDNN or
of generated code run, OpenBLAS has one thread; and as such a kernel has all cores, the segments of a program
that has some of them run one at a time. A program of only reference kernels leaves everything as it is.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import Any

import numpy as np

from ....core import config
from ....core.process.forks import Together
from ...base import ChosenKernel
from ..onednn import loaded, Run
from ..onednn.primitive import Calls
from .threads import here, num_threads


def prepare() -> None:
    """Prepare for a program to be bound: engine workers and threads of OpenBLAS share the cores."""
    share_cores()


class running:
    """Context `with running(n):` in which this thread creates, connects or runs kernels with `n` threads.

    OpenBLAS has one thread meanwhile. Afterwards everything is restored, OpenMP's number of threads too,
    since PyTorch may be using the same library. How long this thread waits for a core meanwhile tells whether
    other processes compete.
    """

    __slots__ = ("before", "began", "openmp", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __enter__(self) -> None:
        self.before, here.threads = here.threads, self.threads
        lib = loaded()
        self.openmp = None if lib is None else lib.use_threads(self.threads)
        hold_back()
        self.began = monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.threads > 1:
            here.contention.add(monotonic() - self.began, self.threads)
        let_go()
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


# -- threads of the BLAS inside numpy ---------------------------------------------------------------------
#
# OpenBLAS starts as many threads as there are cores, for every product, and lets them spin while they wait
# for each other. Beside engine workers that are busy themselves this is ruinous (a training step of many
# small products was seen to take ten times as long), so workers and BLAS threads share the cores. And while
# multithreaded kernels run, OpenBLAS gets one thread: the two pools would compete for the cores.

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
