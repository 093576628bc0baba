"""NVRTC: compiler from CUDA C++ to machine code for one architecture, which needs neither GPU nor driver.

It is called through ctypes, so that neither CuPy nor a toolkit is needed. It emits machine code (cubin)
rather than PTX, which a driver older than the compiler refuses. Source: NVIDIA, "NVRTC", CUDA 13
documentation.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import re
from dataclasses import dataclass
from typing import Any

from ....core.errors import DeviceError, MXLiteError
from ..vendor.libraries import candidates
from .source import KernelSource

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
BUILTINS = ("libnvrtc-builtins.so.[0-9]*", "nvrtc-builtins64_[0-9]*.dll")
FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu13/bin", "nvidia/cuda_nvrtc/bin")


class CompilationError(MXLiteError):
    """Rejection of a kernel by NVRTC; the message is its log."""


@dataclass(frozen=True)
class Usage:
    """Resources of one kernel: registers of a thread, and bytes of memory that registers are spilled to."""

    registers: int
    spilled_bytes: int
    stack_bytes: int


@functools.cache
def library() -> Any:
    """The library, or None if there is none: wheels of this Python first, then the system's, then a
    toolkit's if cuda-pathfinder (which CuPy brings) finds one.
    """
    for name in (*candidates(FOLDERS, NAMES), None):
        try:
            path = name or _elsewhere()
            lib = ctypes.CDLL(path)
        except OSError:
            continue
        _load_builtins(os.path.dirname(path))
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        return lib
    return None


def _load_builtins(folder: str) -> None:
    """Load the library that NVRTC opens by its bare name when it first compiles. NVRTC 13.0 does not look
    beside itself, where wheels have it, but a library that is loaded already is found by its name.
    """
    for name in BUILTINS if folder else ():
        for path in glob.glob(os.path.join(glob.escape(folder), name)):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _elsewhere() -> str:
    """The library's file in a conda environment or where CUDA_HOME says. Raises OSError."""
    try:
        from cuda import pathfinder

        return str(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except Exception as error:  # its exception types differ between versions
        raise OSError(str(error)) from None


def available() -> bool:
    """True if kernels can be compiled here."""
    return library() is not None


@functools.cache
def version() -> tuple[int, int]:
    """Version of NVRTC, such as (13, 0)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


@functools.cache
def architectures() -> tuple[int, ...]:
    """Architectures that this NVRTC supports, ascending: (75, 80, 86, 90, ...)."""
    lib, number = library(), ctypes.c_int()
    _check(lib.nvrtcGetNumSupportedArchs(ctypes.byref(number)), "nvrtcGetNumSupportedArchs")
    found = (ctypes.c_int * number.value)()
    _check(lib.nvrtcGetSupportedArchs(found), "nvrtcGetSupportedArchs")
    return tuple(sorted(found))


def target(major: int, minor: int) -> str:
    """The architecture to compile for on a GPU of compute capability major.minor, such as "sm_90".

    Machine code runs on later minors of its major. Raises DeviceError if there is no NVRTC or none fits.
    """
    if not available():
        raise DeviceError("A GPU needs NVRTC for its kernels; pip install 'mxlite[gpu]' brings it.")
    known = [a for a in architectures() if a // 10 == major and a % 10 <= minor]
    if not known:
        first, last = architectures()[0], architectures()[-1]
        raise DeviceError(
            f"NVRTC {'.'.join(map(str, version()))} makes no machine code for compute capability "
            f"{major}.{minor}, only for sm_{first} to sm_{last}; another version of NVRTC may."
        )
    return f"sm_{known[-1]}"


def compile(source: KernelSource, architecture: str) -> tuple[bytes, str]:
    """(cubin, log) of `source` for `architecture`, as "sm_90". Raises CompilationError with NVRTC's words."""
    lib = library()
    if lib is None:
        raise CompilationError(
            "There is no NVRTC here to compile kernels with; pip install 'mxlite[gpu]' brings it."
        )
    program = ctypes.c_void_p()
    text = source.text.encode()
    _check(
        lib.nvrtcCreateProgram(ctypes.byref(program), text, b"mxlite.cu", 0, None, None),
        "nvrtcCreateProgram",
    )
    try:
        options = [f"-arch={architecture}", "--ptxas-options=-v", *source.options]
        array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = lib.nvrtcCompileProgram(program, len(options), array)
        log = _text(lib, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode(errors="replace")
        if status:
            raise CompilationError(f"NVRTC {'.'.join(map(str, version()))}, {architecture}:\n{log.strip()}")
        return _text(lib, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN"), log
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def usage(log: str) -> dict[str, Usage]:
    """Resources of each kernel of a compilation, parsed from the log that `compile` returned."""
    found: dict[str, Usage] = {}
    name, stack, spilled = "", 0, 0
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name, stack, spilled = match[1], 0, 0
        elif match := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            stack, spilled = int(match[1]), max(int(match[2]), int(match[3]))
        elif name and (match := re.search(r"Used (\d+) registers", line)):
            found[name] = Usage(int(match[1]), spilled, stack)
            name = ""
    return found


def _text(lib: Any, program: Any, size_of: str, get: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(lib, size_of)(program, ctypes.byref(size)), size_of)
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(lib, get)(program, buffer), get)
    return buffer.raw if get == "nvrtcGetCUBIN" else buffer.value


def _check(status: int, call: str) -> None:
    if status:
        raise CompilationError(f"{call}: {library().nvrtcGetErrorString(status).decode()}")
