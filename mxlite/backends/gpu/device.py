"""What the GPU backend asks of a device: memory, kernels, launches. All else is written against this.

The real one (`cuda.py`) stands on CuPy. Tests have two more, so that nearly everything runs where there is no
GPU: one that runs the same kernels on the CPU, and one that only writes down what it is told.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from .source import Source

Run = Callable[[], None]
Grid = tuple[int, int, int]


class Device(Protocol):
    """`xp` is the module of its arrays, `multiprocessors` how many blocks really run at a time, at least."""

    name: str
    xp: ModuleType
    multiprocessors: int

    def empty(self, nbytes: int) -> Any:
        """A 1-D uint8 array, aligned to 256 bytes. Raises OutOfMemoryError."""

    def address(self, array: Any) -> int:
        """Where an array in C order begins."""

    def function(self, source: Source, name: str) -> Any:
        """The kernel `name` of `source`, compiled now or before."""

    def launch(self, function: Any, grid: Grid, block: Grid, shared: int, arguments: Arguments) -> Run:
        """A call that puts one run of the kernel on the stream that is current when it is called."""


class Arguments:
    """What a kernel is launched with, in the form the driver wants: an address for each value."""

    def __init__(self, values: Sequence[Any]) -> None:
        """`values` are ctypes numbers; addresses of arrays are c_void_p."""
        self.values = tuple(values)
        self.pointers = (ctypes.c_void_p * max(1, len(self.values)))(*map(ctypes.addressof, self.values))


def pointer(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)
