"""A device of the GPU backend that runs its kernels on the CPU: compiled by g++, thread after thread."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from mxlite.backends.gpu.compiler.source import KernelSource
from mxlite.backends.gpu.runtime.checks import Check, Note, NOTHING
from mxlite.backends.gpu.runtime.device import Arguments, Grid, Run
from mxlite.core import OperatorError
from tests.emulators.emulated_extents import Extents

FOLDER = Path(__file__).parent / "cuda_on_cpu"
HEADER = (FOLDER / "cuda_on_cpu.h").read_text()
HEADER = HEADER.replace('#include "bounds.h"', (FOLDER / "bounds.h").read_text())
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(([^)]*)\) )?(\w+)\(')
WAITS = ("__sync", "__shfl", "__match", "block_")

compiler = shutil.which("g++")
_one_at_a_time = threading.Lock()  # blocks and threads of a launch are static variables of its library


class EmulatedDevice:
    """Arrays are numpy's. Everything launched is run at once, in order.

    A kernel may touch no more than the arrays whose addresses it is given, see cuda_on_cpu/bounds.h.
    """

    name = "emulated"
    xp = np
    multiprocessors = 2
    shared_bytes = 227 * 1024

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.slots: list[Any] = []
        self._extents = Extents()

    def empty(self, nbytes: int) -> Any:
        block = np.empty(nbytes + 256, np.uint8)
        start = -block.ctypes.data % 256
        return block[start : start + nbytes]

    def address(self, array: Any) -> int:
        assert array.flags.c_contiguous
        return self._extents.note(array)

    def check(self, operation: str, describe: Any, kind: Any = OperatorError) -> Check:
        """A slot of its own; `found` is what the kernels of all slots have noted, as the text about it."""
        words = np.full(3, NOTHING, np.uint64)
        self._extents.note(words)
        self.slots.append((words, describe))
        return Check(
            words.ctypes.data, Note(len(self.slots), operation, describe, kind), lambda address: None
        )

    def found(self) -> list[str]:
        return [describe(tuple(map(int, w))) for w, describe in self.slots if w[0] != NOTHING]

    def function(self, source: KernelSource, name: str) -> Any:
        return _library(source)[name]

    def launch(self, function: Any, grid: Grid, block: Grid, shared: int, arguments: Arguments) -> Run:
        assert (why := refusal(function, grid, block, shared, self.shared_bytes, arguments)) is None, why
        numbers, ranges = ctypes.c_uint * 3, self._extents.of(arguments)

        def run() -> None:
            with _one_at_a_time:
                function.bounds(ranges, len(ranges))
                failure = function(numbers(*grid), numbers(*block), arguments.pointers)
                self.launched.append(function.name)
            assert failure is None, f"{function.name}: {failure.decode()}"

        return run


MOST_ARGUMENTS = 4096  # bytes; later versions of CUDA allow more


def refusal(
    function: Any, grid: Grid, block: Grid, shared: int, most: int, arguments: Arguments
) -> str | None:
    """Why CUDA would not launch this (CUDA C++ Programming Guide, "Technical Specifications per Compute
    Capability", "Function Parameters"), or None. A block of more threads than a kernel was compiled for is
    one reason.
    """
    threads = block[0] * block[1] * block[2]
    if not all(0 < n for n in (*grid, *block)) or grid[0] >= 2**31 or max(grid[1:]) > 65535:
        return f"{function.name}: a grid of {grid}"
    if threads > min(1024, function.most_threads) or block[2] > 64:
        return f"{function.name}: blocks of {block}, made for {function.most_threads} threads"
    if (nbytes := _argument_bytes(arguments)) > MOST_ARGUMENTS:
        return f"{function.name}: {nbytes} bytes of arguments"
    return f"{function.name}: {shared} bytes shared" if shared > most else None


def _argument_bytes(arguments: Arguments) -> int:
    """What the arguments take, each where its type may begin."""
    end = 0
    for value in arguments.values:
        align = ctypes.alignment(value)
        end = -(-end // align) * align + ctypes.sizeof(value)
    return end


def _threads(bounds: str, text: str) -> int:
    """What __launch_bounds__ says, a number or the name of one."""
    first = bounds.split(",")[0].strip()
    if not first:
        return 1024
    if not first.isdigit():
        named = re.search(rf"\b{first}\b\s*=?\s*(\d+)", text)
        assert named, f"what is {first}?"
        first = named[1]
    return int(first)


OPTIONS = ("-std=c++17", "-w", "-fPIC")
# What a kernel calls is in this process already: to search the libraries takes g++ a third of its time.
LINKED = ("-shared", "-nostdlib", "-lgcc")
# kernel-address: a call before each access to memory, which we answer (cuda_on_cpu/bounds.h).
WATCHED = (
    *("-fsanitize=kernel-address", "-fsanitize=alignment", "--param=asan-globals=1", "--param=asan-stack=0"),
    "--param=asan-instrumentation-with-call-threshold=0",
)


@functools.cache
def _library(source: KernelSource) -> dict[str, Any]:
    """The launchers of a source's kernels. Compiled objects are kept for later runs of the tests."""
    bounds_of = {name: threads for threads, name in KERNEL.findall(source.text)}
    names = list(bounds_of)
    assert names
    waits = "true" if any(w in source.text for w in WAITS) else "false"
    launchers = "".join(
        f'extern "C" const char *launch_{n}(const unsigned *grid, const unsigned *block, void **parameters) '
        f"{{ return emulated::launch({n}, grid, block, {waits}, parameters); }}\n"
        for n in names
    )
    # Contracted are products: they and sorts run long, all others are run faster than they are optimized.
    level = "-O1" if source.contract or "sort_tiles" in source.text else "-O0"
    how = (level, f"-ffp-contract={'fast' if source.contract else 'off'}")
    header = _header(how)
    # Without a name: else shared memory of a template may lie in several libraries, and is not watched.
    text = f'#include "{header}"\nnamespace {{\n{source.text}\n}}\n{launchers}'
    library = _made(text, "so", (*WATCHED, *how), LINKED)
    loaded = ctypes.CDLL(str(library))
    result = {}
    bounds = loaded["emulated_bounds"]
    bounds.restype = None
    for name in names:
        function = loaded[f"launch_{name}"]
        function.bounds = bounds
        function.restype = ctypes.c_char_p
        function.name = name
        function.most_threads = _threads(bounds_of[name], source.text)
        result[name] = function
    return result


@functools.cache
def _header(how: tuple[str, ...]) -> Path:
    """The header, compiled beforehand: it takes three times as long as a kernel."""
    made = _made(HEADER, "h.gch", (*WATCHED, *how, "-x", "c++-header"))
    header = made.with_suffix("")
    if not header.exists():
        with tempfile.NamedTemporaryFile("w", dir=made.parent, delete=False) as file:
            file.write(HEADER)
        os.replace(file.name, header)
    return header


def _made(text: str, kind: str, options: tuple[str, ...], linked: tuple[str, ...] = ()) -> Path:
    """The file that g++ makes of `text`, from the cache if it is there."""
    key = hashlib.sha256(repr((text, kind, options, linked, OPTIONS, _version())).encode()).hexdigest()[:32]
    folder = Path(tempfile.gettempdir()) / f"mxlite-cuda-on-cpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid()
    path = folder / f"{key}.{kind}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            given, made = Path(work) / ("text.h" if kind == "h.gch" else "text.cpp"), Path(work) / "made"
            given.write_text(text)
            command = [str(compiler), *OPTIONS, *options, str(given), *linked, "-o", str(made)]
            found = subprocess.run(command, capture_output=True, text=True)
            assert found.returncode == 0, found.stderr[:4000]
            os.replace(made, path)
    return path


@functools.cache
def _version() -> str:
    return subprocess.run([str(compiler), "--version"], capture_output=True, text=True).stdout
