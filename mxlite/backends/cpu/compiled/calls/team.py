"""Calls of generated functions, on one thread or on OpenMP's.

oneDNN's threads are those of libgomp. A second pool beside them would fight for the cores, so generated code
runs on the same ones: GOMP_parallel is what gcc emits for `#pragma omp parallel`, and costs about 6 us. It
is always called for `num_threads()` threads, never for fewer: a smaller team makes libgomp end the others,
and restart them later. Small work runs on the calling thread alone, as does all work on platforms without
libgomp (macOS, Windows).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .....core import config
from .....core.machine_code import native
from ...runtime.spins import LIBRARY, loading
from ...runtime.threads import num_threads
from ..codegen.emitter import Module

Run = Callable[[], None]

_OPENMP = ("omp_get_thread_num", "omp_get_num_threads", "GOMP_barrier")
"""Functions that generated code calls."""

PART_NBYTES = 256 * 1024  # of a part of sums
MOST_PARTS = 32
LEAST_NBYTES = 64 * 1024  # below this much traffic a second thread costs more than it brings


def usable() -> bool:
    """True if generated code may run: there is a compiler, and MXLITE_KERNELS allows it."""
    return "compiled" in config.kernel_kinds() and native.available()


@functools.cache
def openmp() -> Any:
    """libgomp, the one that oneDNN has loaded if it has; None if there is none."""
    if sys.platform in ("win32", "darwin"):
        return None
    try:
        with loading():
            library = ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
        library.GOMP_parallel.restype = None
        for name in _OPENMP:
            library[name]
    except (OSError, AttributeError):
        return None
    return library


def load(module: Module, passes: int = 0) -> native.Code:
    """`module` as machine code, see `native.load`."""
    library = openmp()
    if library is not None:
        _add_symbols(library)
    return native.load(module.text(team=library is not None), passes)


def call(
    code: native.Code, name: str, args: Sequence[int], threads: int | None = None, keep: Any = None
) -> Run:
    """A call of function `name` of `code` with these arguments: addresses and other 64-bit integers.

    `threads`: the number to use, 1 or `num_threads()`; see `threads_for`. `keep` stays referenced by the
    call, which is valid for as long as the arrays at those addresses exist.
    """
    slots: Any = (ctypes.c_int64 * max(1, len(args)))(*args)
    slots.keep = keep
    return caller(code, name, threads)(slots)


def caller(code: native.Code, name: str, threads: int | None = None) -> Callable[[Any], Run]:
    """Factory of calls of function `name` from ctypes arrays of arguments, each in about a microsecond."""
    threads = num_threads() if threads is None else threads
    library = openmp()
    if library is None or threads == 1:
        function = code.function(f"{name}.one")
        return lambda slots: functools.partial(function, slots)
    parallel, count, flags = library.GOMP_parallel, ctypes.c_uint(threads), ctypes.c_uint(0)
    body = ctypes.c_void_p(code.address(f"{name}.all"))

    def make(slots: Any) -> Run:
        run = functools.partial(parallel, body, slots, count, flags)
        run.keep = code  # type: ignore[attr-defined]
        return run

    return make


def rouse(threads: int) -> None:
    """Wake this thread's team of so many by a run that does nothing."""
    library = openmp()
    if library is not None and threads > 1:
        nothing = ctypes.cast(library[_OPENMP[0]], ctypes.c_void_p)
        library.GOMP_parallel(nothing, None, ctypes.c_uint(threads), ctypes.c_uint(0))


def threads_for(nbytes: int) -> int:
    """Threads for work that moves so many bytes (or takes as long as moving them would)."""
    return num_threads() if nbytes >= LEAST_NBYTES and openmp() is not None else 1


def parts_for(nbytes: int) -> int:
    """Parts of work that moves so many bytes, whose sums stay separate until the end.

    Their number does not depend on the number of threads, so neither does the order in which numbers are
    added, nor a bit of the result: a single thread does all parts, one after the other.
    """
    worth = min(MOST_PARTS, max(1, nbytes // PART_NBYTES))
    return int(1 << worth.bit_length() - 1)  # as many for each of two threads, or four


@functools.cache
def _add_symbols(library: Any) -> None:
    for name in _OPENMP:
        address = ctypes.cast(library[name], ctypes.c_void_p).value
        assert address is not None
        native.add_symbol(name, address)
