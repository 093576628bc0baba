"""Interface of a driver for one GPU: memory, streams, events, kernels, graphs, all named by integers.

The real one (`cupy_driver.py`) hands each call to CUDA through CuPy's thin bindings. Tests have one that runs
everything on the CPU, as late and in as strange an order as streams and events allow.
"""

from __future__ import annotations

from typing import Any, Protocol

from ....core.errors import DeviceError
from ..compiler.source import KernelSource
from ..vendor.cublaslt import Library
from .device import Arguments, Grid


class DriverError(DeviceError):
    """Failure of a call of the driver. `code` is its number, `name` CUDA's name for it.

    `is_memory`: out of memory. `is_lasting`: every later call on this device will fail too.
    """

    def __init__(
        self, message: str, *, name: str = "", is_memory: bool = False, is_lasting: bool = False
    ) -> None:
        super().__init__(message)
        self.name = name
        self.is_memory = is_memory
        self.is_lasting = is_lasting


class Driver(Protocol):
    """One device. Streams, events, functions and graphs are handles, addresses are bytes in one space.

    Work on one stream is done in the order of the calls; work on two in any order that events allow. Every
    method raises DriverError; a kernel's own fault comes out of any later call. `architecture` is such as
    "sm_90", `multiprocessors` their number, `shared_bytes` the most shared memory that a block may request.
    """

    name: str
    architecture: str
    multiprocessors: int
    shared_bytes: int

    def activate(self) -> int | None:
        """Make this device current for the calling thread. Cheap when repeated.

        Returns the argument for `restore`, None if the device was current already.
        """

    def restore(self, before: int) -> None:
        """Make the calling thread's former device current, whichever library had set it."""

    def blas(self) -> Library | None:
        """cuBLASLt for this device; None: products run on kernels of our own."""

    def nccl(self) -> Any:
        """CuPy's module of NCCL, or what works like it. Raises DeviceError if there is none."""

    def place(self) -> tuple[str, int]:
        """The device's place in its machine, equal for two processes that use the same one; and how many
        devices this process sees.
        """

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device, whoever uses them."""

    def malloc(self, nbytes: int) -> int:
        """Allocate memory and return its address, aligned to 256 bytes. Waits for nothing on the device."""

    def free(self, address: int) -> None:
        """Free memory. Waits until the device has done all its work."""

    def host_malloc(self, nbytes: int) -> int:
        """Allocate pinned host memory and return its address; only with it copies are asynchronous."""

    def host_free(self, address: int) -> None:
        """Free pinned memory. No pending copy may use it: CUDA does not promise to wait for
        them.
        """

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Put a copy on a stream; each side is on the device or in host memory. With pinned memory it is
        asynchronous, otherwise the call may wait for it.
        """

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        """Put a fill of `target` with `byte` on a stream."""

    def stream(self) -> int:
        """A new stream, which waits for no other."""

    def synchronize(self, stream: int) -> None:
        """Wait until all work on a stream is done."""

    def finish(self) -> None:
        """Wait until the device has done everything, on whatever stream, also for other libraries."""

    def event(self, timed: bool = False) -> int:
        """A new event; one that is `timed` records when it occurs."""

    def record(self, event: int, stream: int) -> None:
        """Record an event that occurs when all earlier work on the stream is done."""

    def wait(self, stream: int, event: int) -> None:
        """Make later work on the stream come after the event as it was last recorded."""

    def synchronize_event(self, event: int) -> None:
        """Wait for an event."""

    def has_come(self, event: int) -> bool:
        """True if an event has occurred. Waits for nothing; raises the fault of a kernel before it."""

    def seconds(self, first: int, second: int) -> float:
        """Device time between two timed events that have occurred."""

    def load(self, source: KernelSource) -> Any:
        """Load a module: the machine code of a source, compiled if no cache has it."""

    def function(self, module: Any, name: str) -> int:
        """A kernel of a module."""

    def launch(
        self, function: int, grid: Grid, block: Grid, shared: int, stream: int, arguments: Arguments
    ) -> None:
        """Put a kernel on a stream. The values of its arguments are read now."""

    def begin_capture(self, stream: int) -> None:
        """Begin to capture this thread's calls on this stream instead of running them. An allocation, or a
        wait for the device, by this thread is an error until the end.
        """

    def end_capture(self, stream: int) -> int:
        """End the capture and return its graph, ready to be launched."""

    def upload_graph(self, graph: int, stream: int) -> None:
        """Put on a stream the allocation of a graph's device resources, before its first launch. Raises
        DriverError if there is no room.
        """

    def launch_graph(self, graph: int, stream: int) -> None:
        """Put all of a graph on a stream."""

    def destroy_graph(self, graph: int) -> None: ...
