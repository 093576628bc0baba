"""oneDNN's shared library: search, checks, and one engine and stream of it.

It is searched for in this order: the file MXLITE_DNNL_LIB names; `libdnnl.so.3` (`dnnl.dll`) where pip puts
that of the wheels onednn-cpu-gomp and onednn-cpu-vcomp: the environment's folder, that of the system's
Python, the user's, and else wherever the installed wheel's record says; the system's. It must be of version 3
and use OpenMP (or no threads): a SYCL build takes milliseconds a call. Without a library everything runs on
numpy.

It uses all instructions that the processor has, unless MXLITE_TARGET or its own ONEDNN_MAX_CPU_ISA says less.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import site
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ....core import config
from ....core.cached import cached_property
from ....core.errors import MXLiteError
from ....core.machine_code import level
from ....core.process import forks
from ..runtime.spins import loading
from .constants import CPU_ISA, STATUS

_SEQUENTIAL, _OPENMP = 1, 2
_AVX512_BF16 = 0x80  # the bit of dnnl_cpu_isa_avx512_core_bf16 that lesser sets lack
_AMX = 0xE00  # the bits that dnnl_cpu_isa_avx512_core_amx has besides
_RUNTIMES = {0: "none", 1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", 512: "SYCL"}


class OneDNNError(MXLiteError):
    """Refusal of oneDNN to create or run a primitive."""


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


class Done(dict[int, None]):
    """Map from a status to None for 0, and to an error for all else. `dict` looks up 0 without running any
    Python code.
    """

    def __missing__(self, status: int) -> None:
        raise failure(status)


def failure(status: int) -> OneDNNError:
    """The error for a status other than 0."""
    return OneDNNError(f"oneDNN reports {STATUS.get(status, f'status {status}')}.")


class Library:
    """The loaded library. `execute` is dnnl_primitive_execute, `sgemm` dnnl_sgemm; both raise OneDNNError."""

    def __init__(self, path: str) -> None:
        self.path = path
        with loading():
            self.handle = ctypes.CDLL(path)
        self.handle.dnnl_version.restype = ctypes.POINTER(_Version)
        found = self.handle.dnnl_version().contents
        self.version = (found.major, found.minor, found.patch)
        self.runtime = found.cpu_runtime
        if found.major != 3 or found.cpu_runtime not in (_SEQUENTIAL, _OPENMP):
            raise OneDNNError(
                f"{path} is oneDNN {'.'.join(map(str, self.version))} with "
                f"{_RUNTIMES.get(self.runtime, self.runtime)} threads; wanted is version 3 with OpenMP "
                f"(pip install onednn-cpu-gomp==2023.2.0)."
            )
        self.handle.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.handle.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.execute: Any = self.handle.dnnl_primitive_execute
        self.execute.restype = Done({0: None}).__getitem__
        self.sgemm: Any = self.handle.dnnl_sgemm
        self.sgemm.restype = self.execute.restype
        if (target := config.target()) != "native":  # before anything is created
            self.call("dnnl_set_max_cpu_isa", ctypes.c_int(level.LEVELS[target].onednn))
        self.engine = self.new("dnnl_engine_create", ctypes.c_int(1), ctypes.c_size_t(0))
        self.stream = self.new("dnnl_stream_create", self.engine, ctypes.c_uint(1))
        self._openmp = _openmp(self.handle) if self.runtime == _OPENMP else None

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns a status. Every argument must be a ctypes object of the right size."""
        if status := self.handle[name](*args):
            raise OneDNNError(f"{name}: {STATUS.get(status, f'status {status}')}.")

    def new(self, name: str, *args: Any) -> ctypes.c_void_p:
        """The handle created by a function of the form `name(handle *out, ...)`."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *args)
        return handle

    @cached_property
    def isa(self) -> int:
        """dnnl_cpu_isa_t in use: bits, one for each instruction set."""
        return int(self.handle.dnnl_get_effective_cpu_isa())

    @property
    def has_bf16(self) -> bool:
        """True if the processor multiplies bfloat16; else oneDNN emulates it, slower than float32."""
        return bool(self.isa & _AVX512_BF16)

    @property
    def bf16_by(self) -> str:
        """Description of how bfloat16 is multiplied."""
        if self.isa & _AMX == _AMX:
            return "the tiles of AMX"
        return "instructions of AVX-512" if self.has_bf16 else "nothing here: widened, computed in float32"

    @property
    def instructions(self) -> str:
        """`isa` in words: that of the largest known set which it contains, and its number."""
        known = max((bits for bits in CPU_ISA if bits & self.isa == bits), key=int.bit_count)
        return f"{CPU_ISA[known]} ({self.isa:#x})"

    def use_threads(self, threads: int) -> int | None:
        """Set the number of threads for what the calling thread runs from now on.

        Returns the previous number if it was another, else None.
        """
        if self._openmp is None:
            return None
        before = int(self._openmp.omp_get_max_threads())
        if before == threads:
            return None
        self._openmp.omp_set_num_threads(ctypes.c_int(threads))
        return before

    def threads_call(self, threads: int) -> Callable[[], None] | None:
        """A call that sets the number of threads for its thread's later work; None without OpenMP."""
        if self._openmp is None:
            return None
        return partial(self._openmp.omp_set_num_threads, ctypes.c_int(threads))

    @property
    def threading(self) -> str:
        """The threading runtime of the library."""
        return _RUNTIMES.get(self.runtime, str(self.runtime))


class Found(NamedTuple):
    """The library, or None, and the reason for rejecting each file that is unusable."""

    library: Library | None
    troubles: tuple[str, ...]


_found: list[Found] = []
_finding = forks.lock()


def loaded() -> Library | None:
    """The library if it is loaded already."""
    return _found[0].library if _found else None


def find() -> Found:
    """Look for the library and load it, once in a process. Raises MXLiteError if MXLITE_DNNL_LIB names no
    file.
    """
    with _finding:
        if not _found:
            troubles = []
            library = None
            for path in _candidates():
                try:
                    library = Library(path)
                    break
                except OSError as error:
                    hint = " (the Debian package libgomp1 has that)" if "libgomp" in str(error) else ""
                    troubles.append(f"{error}{hint}")
                except (OneDNNError, AttributeError) as error:
                    troubles.append(str(error))
            if library is None and not config.dnnl_lib():
                troubles += [
                    f"a wheel of oneDNN is installed, but {path} is not there (`pip install --target` leaves "
                    f"it out); MXLITE_DNNL_LIB names one elsewhere"
                    for path in _recorded()
                    if not os.path.exists(path)
                ]
            _found.append(Found(library, tuple(dict.fromkeys(troubles))))
    return _found[0]


@functools.cache
def library() -> Library | None:
    """The library, loaded at the first call; None where there is none. Warns if one is there but unusable.

    Permission to use it is another question: `config.kernel_kinds`.
    """
    found = find()
    if found.library is None and found.troubles:
        warnings.warn(
            f"oneDNN cannot be used, so kernels run on numpy, which is several times slower: "
            f"{'; '.join(found.troubles)}",
            RuntimeWarning,
            stacklevel=2,
        )
    return found.library


WHEELS = ("onednn-cpu-gomp", "onednn-cpu-vcomp")


def _candidates() -> Iterator[str]:
    if named := config.dnnl_lib():
        if not os.path.exists(named):
            raise MXLiteError(f"MXLITE_DNNL_LIB names {named!r}, where there is no file.")
        yield os.path.abspath(named)
        return
    if sys.platform == "win32":
        names = [os.path.join("Library", "bin", "dnnl.dll")]
    else:
        names = [os.path.join("lib", "libdnnl.so.3"), os.path.join("lib", "libdnnl.so")]
    roots = [sys.prefix, sysconfig.get_path("data")]
    if site.ENABLE_USER_SITE:
        roots.append(site.getuserbase())
    seen = False
    for root in dict.fromkeys(roots):
        for name in names:
            path = os.path.join(root, name)
            if os.path.exists(path):
                seen = True
                yield path
                break
    if not seen:
        yield from (path for path in _recorded() if os.path.exists(path))
    if system := ctypes.util.find_library("dnnl"):
        yield system


def _recorded() -> list[str]:
    """Paths of the library in the records of installed wheels. Slower than the usual places."""
    from importlib import metadata

    found = []
    for wheel in WHEELS:
        try:
            files = {file.name: file for file in metadata.files(wheel) or ()}
        except metadata.PackageNotFoundError:
            continue
        named = files.get("libdnnl.so.3") or files.get("dnnl.dll")
        if named is not None:
            found.append(os.path.abspath(str(named.locate())))
    return found


def _openmp(handle: ctypes.CDLL) -> Any:
    """The OpenMP runtime that the library uses; None if it cannot be found.

    It is looked up through the library itself, which finds the one it was linked to whatever its name is.
    Windows does not look further than the library. The calls only get or set a number, so the GIL is kept.
    """
    try:
        own = ctypes.PyDLL(handle._name, handle=handle._handle)
        if sys.platform == "win32":
            own = ctypes.PyDLL("vcomp140.dll")
        own.omp_set_num_threads.restype = None
        own.omp_get_max_threads.restype = ctypes.c_int
    except (OSError, AttributeError):
        return None
    return own
