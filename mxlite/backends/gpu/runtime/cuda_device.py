"""One GPU as this process uses it: a stream for kernels, streams for copies, memory, compiled kernels.

Order
-----
All kernels of a device go to its **compute stream**, in the order in which the engine runs its operations, so
among themselves they need no events. `issued` counts what operations have put there; the number is a
**ticket**. An array's Var keeps the ticket of the last operation that touched it (`Var.fence`). A user of the
array from elsewhere, a copy stream or the host, waits for that ticket and not for what was issued later:

    compute   k1  k2  k3  k4  k5 ...           array a was last touched by k2
    download          wait(2)  a -> host       runs beside k3, k4, k5

Tickets map to events in a ring; one that has left the ring is done or maps to a later event, which is
safe. A copy to or from the host is waited for by the thread that requested it (a worker for copies of the
engine), so every later operation, on whatever stream or on the host, finds it done.

Faults
------
A kernel's fault shows in some later call. From then on CUDA refuses everything on this device: `fault` keeps
the first error, and every use raises it. Other devices and the host go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from ....core.errors import DeviceError, OperatorError, OutOfMemoryError
from ....core.process import forks
from ....core.process.collection import no_collection
from ..compiler.source import KernelSource
from .array import DeviceArray
from .checks import Check, Checks, Describe
from .device import Arguments, Grid, Run
from .driver import Driver, DriverError
from .memory import capturing, is_capturing, MemoryBlock, MemoryPool, Room, when_allowed

RING = 512  # events of the compute stream that are kept

_bytes = np.dtype(np.uint8)


class CudaDevice:
    """One GPU; see above. `index` is its number, `limit` the most bytes that it takes."""

    xp: ModuleType = np

    def __init__(self, driver: Driver, index: int, limit: int | None = None) -> None:
        self.driver = driver
        self.index = index
        self.name = driver.name
        self.architecture = driver.architecture
        self.multiprocessors = driver.multiprocessors
        self.shared_bytes = driver.shared_bytes
        self.fault: DriverError | None = None
        self.was_forked = False
        with self.active():
            self.blas = driver.blas()
            self.compute, self.uploads, self.downloads = (driver.stream() for _ in range(3))
            self._ring = [driver.event() for _ in range(RING)]
        self.issued = 0
        self._done = 0  # a ticket known to be over
        self._thread = threading.local()
        self._timing = forks.lock()
        self._watch: list[int] = []  # two timed events
        self._foreign: int | None = None  # an event for streams of others
        # Reentrant: while marking, the collector may free an arena, which marks too.
        self._marking = forks.rlock()
        self._compiling = forks.lock()
        self._capture = forks.lock()  # held by the thread that captures a graph
        self._captured_on: int | None = None  # the default stream for captures
        self.before_capture: list[Callable[[int], None]] = []  # called with a stream about to be captured
        self._functions: dict[tuple[KernelSource, str], int] = {}
        self._modules: dict[KernelSource, Any] = {}
        self.pool = MemoryPool(self, driver, limit)
        self.checks = Checks(self)
        self.peers: Any = None  # the GPUs of other ranks, once they are joined

    def __repr__(self) -> str:
        return f"gpu({self.index})"

    # -- memory ----------------------------------------------------------------------------------------

    def empty(self, nbytes: int) -> DeviceArray:
        """A 1-D uint8 array of `nbytes` from the pool, aligned to 256. Raises OutOfMemoryError."""
        return self._array(self.pool.block, nbytes)

    def arena(self, nbytes: int) -> DeviceArray:
        """A 1-D uint8 array that takes exactly `nbytes` of the device. Raises OutOfMemoryError."""
        return self._array(self.pool.exactly, nbytes)

    def _array(self, make: Callable[[int], MemoryBlock], nbytes: int) -> DeviceArray:
        with self.active():
            if is_capturing():
                raise DeviceError(f"{nbytes} bytes asked of {self} while a CUDA graph is captured.")
            block = make(nbytes)
        return DeviceArray(block, block.address, (nbytes,), _bytes)

    def address(self, array: Any) -> int:
        """Start address of an array of this device."""
        if array.device is not self:
            raise DeviceError(f"A kernel on {self} was given an array on {array.device}.")
        return int(array.address)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes, counting all users of the device."""
        with self.active():
            self.pool.tidy()
            return self.driver.memory()

    def room(self, blocks: Iterable[int], arena: int) -> Room:
        """Free memory, and if arrays of these sizes and then an arena can be allocated in it."""
        free, total = self.memory()
        return Room(free, total, self.pool.held(), self.pool.missing(blocks, arena, free))

    # -- kernels ---------------------------------------------------------------------------------------

    def function(self, source: KernelSource, name: str) -> int:
        """The kernel `name` of `source`, compiled on first use."""
        key = (source, name)
        found = self._functions.get(key)
        if found is None:
            with self._compiling, self.active():
                try:
                    module = self._modules.get(source)
                    if module is None:
                        module = self._modules[source] = self.driver.load(source)
                    found = self._functions[key] = self.driver.function(module, name)
                except DriverError as error:
                    if not error.is_memory:
                        raise
                    raise OutOfMemoryError(f"{self} has no room for the kernel {name!r}: {error}") from None
        return found

    def launch(self, function: int, grid: Grid, block: Grid, shared: int, arguments: Arguments) -> Run:
        """A call that puts one run of the kernel on the stream that is current when it is called."""
        return Launch(self, function, grid, block, shared, arguments)

    def check(self, operation: str, describe: Describe, kind: type[OperatorError] = OperatorError) -> Check:
        """A slot in which a kernel of that operator notes errors in its data."""
        return self.checks.slot(operation, describe, kind)

    # -- streams ---------------------------------------------------------------------------------------

    @property
    def stream(self) -> int:
        """The stream of this thread's launches: the compute stream, or the one that `on` has set."""
        return getattr(self._thread, "stream", None) or self.compute

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Context in which this thread's launches go to `stream`."""
        before = getattr(self._thread, "stream", None)
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before

    @contextmanager
    def active(self) -> Iterator[None]:
        """Context in which this device is the thread's current one; its errors are noted.

        Raises DeviceError.
        """
        if self.fault is not None:
            raise self._after_fault()
        before = None
        try:
            before = self.driver.activate()
            yield
        except DriverError as error:
            if error.is_lasting and self.fault is None:
                self.fault = error
            raise
        finally:
            if before is not None:
                self.driver.restore(before)

    def lose(self) -> None:
        """Give up in a forked child, which cannot use what its parent has on the device."""
        self.fault = DriverError("it was opened before the process forked, and CUDA does not follow there.")
        self.was_forked = True
        self.pool.lose()

    def _after_fault(self) -> DeviceError:
        if self.was_forked:
            return DeviceError(
                f"{self} cannot be used in this process: {self.fault} Start the process with the method "
                f"'spawn', or fork before a GPU is used."
            )
        return DeviceError(
            f"{self} cannot be used any more in this process: {self.fault} Arrays on other devices are "
            f"not affected; a new process can use {self} again."
        )

    def mark(self) -> int:
        """The ticket of everything put on the compute stream so far."""
        with self._marking:
            ticket = self.issued + 1
            self.driver.record(self._ring[ticket % RING], self.compute)
            self.issued = ticket
        return ticket

    def let_wait(self, stream: int, ticket: int) -> None:
        """Make later work on `stream` come after `ticket`. The host does not wait.

        A ticket that is yet to be issued stands for the work on the compute stream so far.
        """
        if ticket > self.issued:
            self.mark()
        if ticket > self._done:
            self.driver.wait(stream, self._ring[ticket % RING])

    def await_stream(self, stream: int) -> None:
        """Make later work on the compute stream come after all current work of another library's stream."""
        with self.active(), self._marking:
            if self._foreign is None:
                self._foreign = self.driver.event()
            self.driver.record(self._foreign, stream)
            self.driver.wait(self.compute, self._foreign)

    def wait_for(self, ticket: int) -> None:
        """Wait until `ticket` is done; raises the fault of a kernel before it."""
        if ticket > self._done:
            with self.active():
                if ticket > self.issued:
                    self.mark()
                self.driver.synchronize_event(self._ring[ticket % RING])
                self._done = max(self._done, ticket)

    def synchronize(self) -> None:
        """Wait until everything is done; raises the fault of a kernel."""
        with self.active():
            for stream in (self.compute, self.uploads, self.downloads):
                self.driver.synchronize(stream)

    def time(self, run: Run, repeats: int = 5) -> float:
        """Seconds of device time of one `run`: the least of several, after one for warm-up."""
        with self._timing, self.active():
            if not self._watch:
                self._watch += [self.driver.event(timed=True) for _ in range(2)]
            first, second = self._watch
            run()
            best = float("inf")
            for _ in range(repeats):
                self.driver.record(first, self.stream)
                run()
                self.driver.record(second, self.stream)
                self.driver.synchronize_event(second)
                best = min(best, self.driver.seconds(first, second))
            return best

    # -- copies ----------------------------------------------------------------------------------------

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Put a copy of bytes, from this device or another, on the current stream."""
        assert target.nbytes == source.nbytes
        if target.nbytes:
            self.driver.copy(target.address, source.address, target.nbytes, self.stream)

    def upload(self, target: DeviceArray, source: np.ndarray, after: int = 0) -> None:
        """Copy from the host, after ticket `after`; returns when it is done."""
        self._cross(self.uploads, target.address, source.ctypes.data, source, target, after)

    def download(self, target: np.ndarray, source: DeviceArray, after: int = 0) -> None:
        """Copy to the host, after ticket `after`; returns when it is done."""
        self._cross(self.downloads, target.ctypes.data, source.address, target, source, after)

    def take_over(self, target: DeviceArray, source: DeviceArray, after: int = 0) -> None:
        """Copy from another device, where `source` is ready, after ticket `after`; waits for the copy."""
        assert target.nbytes == source.nbytes
        if target.nbytes:
            with self.active():
                self.let_wait(self.uploads, after)
                self.driver.copy(target.address, source.address, target.nbytes, self.uploads)
                self.driver.synchronize(self.uploads)

    def _cross(
        self, stream: int, to: int, start: int, host: np.ndarray, there: DeviceArray, after: int
    ) -> None:
        assert host.flags.c_contiguous and host.nbytes == there.nbytes, (host.strides, host.nbytes, there)
        if not host.nbytes:
            return
        with self.active():
            if is_capturing():
                raise DeviceError(f"A copy between the host and {self} while a CUDA graph is captured.")
            self.let_wait(stream, after)
            self.driver.copy(to, start, host.nbytes, stream)
            self.driver.synchronize(stream)

    def fill_bytes(self, target: DeviceArray, byte: int = 0) -> None:
        """Put a fill of `target` with `byte` on the current stream."""
        if target.nbytes:
            self.driver.fill(target.address, byte, target.nbytes, self.stream)

    def pinned(self, nbytes: int) -> np.ndarray:
        """A 1-D uint8 array in pinned host memory. Raises OutOfMemoryError."""
        with self.active():
            try:
                address = self.driver.host_malloc(nbytes)
            except DriverError as error:
                if not error.is_memory:
                    raise
                raise OutOfMemoryError(
                    f"The host has no room for {nbytes} bytes more of pinned memory for {self}: {error}"
                ) from None
        return np.asarray(PinnedMemory(self, address, nbytes))

    def free_pinned(self, address: int) -> None:
        """Free pinned memory once none of our copies uses it: CUDA does not promise to wait."""
        self.synchronize()
        self.driver.host_free(address)

    # -- graphs ----------------------------------------------------------------------------------------

    def capture(self, runs: Sequence[Run], stream: int | None = None) -> CapturedGraph:
        """Capture all launches of `runs` as one graph, without running them.

        Raises what a run raises; the stream is usable afterwards.
        """
        with self._capture, self.active():
            if stream is None:
                self._captured_on = stream = self._captured_on or self.driver.stream()
            # An array that the garbage collector frees would be a call in the middle of the capture.
            with self.on(stream), capturing(), no_collection():
                for tell in self.before_capture:
                    tell(stream)
                self.driver.begin_capture(stream)
                try:
                    for run in runs:
                        run()
                except BaseException:
                    try:
                        self.driver.destroy_graph(self.driver.end_capture(stream))
                    except DriverError:
                        pass  # the exception being raised has broken it already
                    raise
                graph = CapturedGraph(self, self.driver.end_capture(stream))
            try:  # now, while a fallback is possible: its first launch is in the middle of a step
                self.driver.upload_graph(graph.handle, self.compute)
            except DriverError as error:
                if error.is_memory or error.is_lasting:
                    raise
            return graph

    @contextmanager
    def between_captures(self) -> Iterator[None]:
        """Context in which no other thread captures a graph."""
        if is_capturing():
            yield
        else:
            with self._capture:
                yield

    def come_to_rest(self) -> bool:
        """Wait until the device has done everything, for all users. False while a thread captures a graph, of
        another library too, and after a fault, which the next use raises.

        CUDA refuses to wait for a device with a stream that is captured, and gives up the capture, whichever
        thread asks (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations").
        """
        if not self._capture.acquire(blocking=False):
            return False
        try:
            with self.active():  # called by finalizers, too, on any thread
                self.driver.finish()
        except DeviceError:
            return False
        finally:
            self._capture.release()
        return True

    @property
    def is_capturing(self) -> bool:
        """True if this thread's launches are captured instead of run."""
        return is_capturing()


class Launch:
    """One kernel with its arguments; a call puts it on the current stream."""

    __slots__ = ("arguments", "block", "device", "function", "grid", "shared")

    def __init__(
        self, device: CudaDevice, function: int, grid: Grid, block: Grid, shared: int, arguments: Arguments
    ) -> None:
        self.device, self.function, self.arguments = device, function, arguments
        self.grid, self.block, self.shared = grid, block, shared

    def __call__(self) -> None:
        device = self.device
        device.driver.launch(self.function, self.grid, self.block, self.shared, device.stream, self.arguments)


class CapturedGraph:
    """Launches that were captured together; a call puts all on the current stream at once."""

    def __init__(self, device: CudaDevice, handle: int) -> None:
        self.device = device
        self.handle = handle

    def __call__(self) -> None:
        self.device.driver.launch_graph(self.handle, self.device.stream)

    def __del__(self) -> None:
        _end(self.device, self.device.driver.destroy_graph, self.handle)


class PinnedMemory:
    """Pinned host memory as a buffer of bytes, freed with the last array on it."""

    def __init__(self, device: CudaDevice, address: int, nbytes: int) -> None:
        self._device, self._address = device, address
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        _end(self._device, self._device.free_pinned, self._address)


def _end(device: CudaDevice, call: Callable[[int], None], handle: int) -> None:
    """Free `handle` from a finalizer. At exit, or on a lost device, there is nothing to free."""

    def end() -> None:
        try:
            if device.fault is None:
                call(handle)
        except Exception:
            pass

    try:
        when_allowed(end)
    except Exception:  # the interpreter shuts down, and its modules are empty
        pass
