"""What a driver does for one GPU: memory, streams, events, kernels, graphs, all named by whole numbers.

The real one (`cupy_driver.py`) hands each call to CUDA through CuPy's thin bindings. Tests have one that runs
everything on the CPU, as late and in as strange an order as streams and events allow.
"""

from __future__ import annotations

from typing import Any, Protocol

from ...core.errors import DeviceError
from .cublaslt import Library
from .device import Arguments, Grid
from .source import Source


class DriverError(DeviceError):
    """A call of the driver that failed. `code` is its number, `name` what CUDA calls it.

    `is_memory`: there was no room. `is_lasting`: every later call on this device will fail too.
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

    Work on one stream is done in the order of the calls; work on two in any order but what events say. Every
    method raises DriverError; a kernel's own fault comes out of any later call. `architecture` is as "sm_90",
    `multiprocessors` how many there are, `shared_bytes` the most shared memory that a block may ask for.
    """

    name: str
    architecture: str
    multiprocessors: int
    shared_bytes: int

    def activate(self) -> int | None:
        """Make the calling thread talk to this device. Cheap when repeated.

        Returns what `restore` wants, None where the thread did so already.
        """

    def restore(self, before: int) -> None:
        """Let the calling thread talk again to what it talked to before, of whatever library."""

    def blas(self) -> Library | None:
        """cuBLASLt for this device; None: products run on kernels of our own."""

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device, whoever uses them."""

    def malloc(self, nbytes: int) -> int:
        """The address of new memory, aligned to 256 bytes. Waits for nothing on the device."""

    def free(self, address: int) -> None:
        """Give memory back. Waits until the device has done all that was asked of it."""

    def host_malloc(self, nbytes: int) -> int:
        """The address of pinned host memory, which copies to and from the device need to be asynchronous."""

    def host_free(self, address: int) -> None:
        """Give pinned memory back. Copies that are still to come must not name it: nobody says that they are
        waited for.
        """

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Put a copy on a stream; each side is on the device or in host memory. From and to pinned memory it
        happens later, else the call may wait for it.
        """

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        """Put on a stream: every byte of `target` becomes `byte`."""

    def stream(self) -> int:
        """A new stream, which waits for no other."""

    def synchronize(self, stream: int) -> None:
        """Wait until all that was put on a stream is done."""

    def finish(self) -> None:
        """Wait until the device has done everything, on whatever stream, also for other libraries."""

    def event(self, timed: bool = False) -> int:
        """A new event; one that is `timed` notes when it comes."""

    def record(self, event: int, stream: int) -> None:
        """The event comes when all that was put on the stream before is done."""

    def wait(self, stream: int, event: int) -> None:
        """What is put on the stream from now on comes after the event as it was last recorded."""

    def synchronize_event(self, event: int) -> None:
        """Wait for an event."""

    def has_come(self, event: int) -> bool:
        """Whether an event is over. Waits for nothing; raises the fault of a kernel before it."""

    def seconds(self, first: int, second: int) -> float:
        """Device time between two timed events that are over."""

    def load(self, source: Source) -> Any:
        """A module: the machine code of a text. Compiles where no cache has it."""

    def function(self, module: Any, name: str) -> int:
        """A kernel of a module."""

    def launch(
        self, function: int, grid: Grid, block: Grid, shared: int, stream: int, arguments: Arguments
    ) -> None:
        """Put a kernel on a stream. The values of its arguments are read now."""

    def begin_capture(self, stream: int) -> None:
        """From now on the calls on this stream (of this thread) are noted, not done. An allocation, or a wait
        for the device, by this thread is an error until the end.
        """

    def end_capture(self, stream: int) -> int:
        """A graph of what was noted, ready to be launched."""

    def upload_graph(self, graph: int, stream: int) -> None:
        """Put on a stream: what a graph takes of the device is there before its first launch. Raises
        DriverError where there is no room.
        """

    def launch_graph(self, graph: int, stream: int) -> None:
        """Put all of a graph on a stream."""

    def destroy_graph(self, graph: int) -> None: ...
