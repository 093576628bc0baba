"""oneDNN's shared library: found, checked, and one engine and stream of it.

Looked for in this order: the file MXLITE_DNNL_LIB names; `libdnnl.so.3` (`dnnl.dll`) where pip puts that of
the wheels onednn-cpu-gomp and onednn-cpu-vcomp; the system's. It must be of version 3 and use OpenMP (or no
threads): a SYCL build takes milliseconds a call. Without a library everything runs on numpy.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from ....core import config
from ....core.errors import MXLiteError
from .constants import STATUS

_SEQUENTIAL, _OPENMP = 1, 2
_AVX512_BF16 = 0x80  # the bit of dnnl_cpu_isa_avx512_core_bf16 that lesser sets lack
_RUNTIMES = {0: "none", 1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", 512: "SYCL"}


class OneDNNError(MXLiteError):
    """oneDNN refused to make or run a primitive."""


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


class _Done(dict[int, None]):
    """What to make of a status: None for 0, an error for all else. `dict` looks 0 up without a step of
    Python.
    """

    def __missing__(self, status: int) -> None:
        raise OneDNNError(f"oneDNN reports {STATUS.get(status, f'status {status}')}.")


class Library:
    """The loaded library. `execute` is dnnl_primitive_execute, raising OneDNNError."""

    def __init__(self, path: str) -> None:
        self.path = path
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
        self.execute.restype = _Done({0: None}).__getitem__
        self.engine = self.new("dnnl_engine_create", ctypes.c_int(1), ctypes.c_size_t(0))
        self.stream = self.new("dnnl_stream_create", self.engine, ctypes.c_uint(1))
        self._openmp = _openmp() if self.runtime == _OPENMP else None
        self._here = threading.local()

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns a status. Every argument must be a ctypes object of the right size."""
        if status := self.handle[name](*args):
            raise OneDNNError(f"{name}: {STATUS.get(status, f'status {status}')}.")

    def new(self, name: str, *args: Any) -> ctypes.c_void_p:
        """What a function of the form `name(handle *out, ...)` makes."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *args)
        return handle

    @functools.cached_property
    def isa(self) -> int:
        """dnnl_cpu_isa_t in use: bits, one for each set of instructions."""
        return int(self.handle.dnnl_get_effective_cpu_isa())

    @property
    def has_bf16(self) -> bool:
        """Whether the processor multiplies bfloat16 itself; else oneDNN emulates that, slower than float32."""
        return bool(self.isa & _AVX512_BF16)

    def use_threads(self, threads: int) -> None:
        """What the calling thread runs from here on runs on so many threads."""
        if self._openmp is not None and getattr(self._here, "threads", None) != threads:
            self._openmp.omp_set_num_threads(ctypes.c_int(threads))
            self._here.threads = threads


@functools.cache
def library() -> Library | None:
    """The library, loaded at the first call; None where there is none. Warns if one is there but unusable.

    Whether it may be used is another question: `config.kernel_kinds`.
    """
    troubles = []
    for path in _candidates():
        try:
            return Library(path)
        except OSError as error:
            hint = " (the Debian package libgomp1 has that)" if "libgomp" in str(error) else ""
            troubles.append(f"{error}{hint}")
        except (OneDNNError, AttributeError) as error:
            troubles.append(str(error))
    if troubles:
        warnings.warn(
            f"oneDNN cannot be used, so kernels run on numpy, which is several times slower: "
            f"{'; '.join(troubles)}",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _candidates() -> Iterator[str]:
    if named := config.dnnl_lib():
        if not os.path.exists(named):
            raise MXLiteError(f"MXLITE_DNNL_LIB names {named!r}, where there is no file.")
        yield named
        return
    if sys.platform == "win32":
        names = (os.path.join("Library", "bin", "dnnl.dll"),)
    else:
        names = (os.path.join("lib", "libdnnl.so.3"), os.path.join("lib", "libdnnl.so"))
    for root in dict.fromkeys((sys.prefix, sysconfig.get_path("data"), _user_base())):
        for name in names:
            path = os.path.join(root, name)
            if os.path.exists(path):
                yield path
                break
    if system := ctypes.util.find_library("dnnl"):
        yield system


def _user_base() -> str:
    import site

    return site.getuserbase()


@functools.cache
def _openmp() -> Any:
    """The OpenMP runtime that oneDNN uses, already loaded with it; None if it has another name here."""
    name = "vcomp140.dll" if sys.platform == "win32" else "libgomp.so.1"
    try:
        return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
