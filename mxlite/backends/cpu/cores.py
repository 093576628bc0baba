"""Who gets the cores.

numpy's OpenBLAS has a pool of threads of its own, and while these wait they take the cores from OpenMP's:
the one alternating with the other is several times slower than either alone. So where kernels of oneDNN run,
OpenBLAS gets one thread; and as such a kernel has all cores, those of one program run one at a time.
"""

from __future__ import annotations

from ...core import config
from .blas import set_blas_threads, share_cores
from .compiled.team import openmp, usable
from .onednn import library
from .threads import num_threads


def prepare() -> None:
    """Before a program is bound: see to the threads of OpenBLAS."""
    if "onednn" in config.kernel_kinds() and library() is not None:
        set_blas_threads(1)
    else:
        share_cores()


def enter() -> None:
    """A thread is about to run kernels: they may use `num_threads()` threads."""
    if (lib := library()) is not None:
        lib.use_threads(num_threads())


def in_turn() -> bool:
    """Whether the kernels of a program use all cores, so that two of them at a time would fight."""
    return num_threads() > 1 and (library() is not None or (usable() and openmp() is not None))
