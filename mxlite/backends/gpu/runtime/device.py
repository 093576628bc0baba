"""Interface of a device to kernels, and of kernels to a device: calls that put work on a stream.

A `Run` of a kernel is called many times, eagerly or while a stream is captured, so it only launches:
it allocates nothing, waits for nothing and reads no element. One that cannot promise that says so in
`blocks_capture`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from ....core.errors import OperatorError
from ..compiler.source import KernelSource

Run = Callable[[], None]
Grid = tuple[int, int, int]


class Device(Protocol):
    """A device. `xp` is the module of its arrays, `multiprocessors` the least number of concurrent blocks.

    `shared_bytes` is the most shared memory that a block may have.
    """

    name: str
    xp: ModuleType
    multiprocessors: int
    shared_bytes: int

    def empty(self, nbytes: int) -> Any:
        """A 1-D uint8 array, aligned to 256 bytes. Raises OutOfMemoryError."""

    def address(self, array: Any) -> int:
        """Start address of an array in C order."""

    def function(self, source: KernelSource, name: str) -> Any:
        """The kernel `name` of `source`, compiled on first use."""

    def launch(self, function: Any, grid: Grid, block: Grid, shared: int, arguments: Arguments) -> Run:
        """A call that puts one run of the kernel on the stream that is current when it is called.

        `shared` is dynamic shared memory in bytes.
        """

    def check(
        self,
        operation: str,
        describe: Callable[[tuple[int, int, int]], str],
        kind: type[OperatorError] = OperatorError,
    ) -> Any:
        """A slot in which a kernel of that operator notes errors; see checks.py."""


class Arguments:
    """Kernel arguments in the form of the driver: an address for each value."""

    def __init__(self, values: Sequence[Any]) -> None:
        """`values` are ctypes numbers; addresses of arrays are c_void_p."""
        self.values = tuple(values)
        self.pointers = (ctypes.c_void_p * max(1, len(self.values)))(*map(ctypes.addressof, self.values))
        self.address = ctypes.addressof(self.pointers)


class InOrder:
    """Several calls in sequence as one; nested ones are flattened."""

    runs: tuple[Run, ...]

    def __init__(self, runs: Sequence[Run]) -> None:
        flat: list[Run] = []
        for run in runs:
            flat += run.runs if isinstance(run, InOrder) else [run]
        self.runs = tuple(flat)

    @property
    def blocks_capture(self) -> str | None:
        """Reason why a stream cannot be captured around it; None if it can."""
        return next((why for run in self.runs if (why := blocks_capture(run)) is not None), None)

    def __call__(self) -> None:
        for run in self.runs:
            run()


def one_after_other(runs: Sequence[Run]) -> Run:
    """Several calls as one; a single one is itself."""
    return nothing if not runs else runs[0] if len(runs) == 1 else InOrder(runs)


def blocks_capture(run: Run) -> str | None:
    """Reason why a stream cannot be captured while `run` is called; None if it can."""
    return getattr(run, "blocks_capture", None)


def nothing() -> None:
    """Do nothing: the run of a kernel without elements."""


def pointer(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)
