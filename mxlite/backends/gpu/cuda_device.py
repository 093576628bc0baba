"""One GPU as this process uses it: a stream for kernels, streams for copies, memory, compiled kernels.

Order
-----
All kernels of a device go to its **compute stream**, in the order in which the engine runs its operations, so
among themselves they need no events. `issued` counts what was put there by operations; the number is a
**ticket**. An array's Var keeps the ticket of the last operation that touched it (`Var.fence`). Who uses the
array from elsewhere, a copy stream or the host, waits for that ticket and not for what was issued later:

    compute   k1  k2  k3  k4  k5 ...           array a was last touched by k2
    download          wait(2)  a -> host       runs beside k3, k4, k5

Tickets stand on events in a ring; one that has left the ring is over or stands for a later event, which is
safe. A copy to or from the host is waited for by the thread that asked for it (a worker for copies of the
engine), so whoever comes after it, on whatever stream or on the host, finds it done.

Faults
------
A kernel's fault shows in some later call. From then on CUDA refuses everything on this device: `fault` keeps
the first error, and every use says it. Other devices and the host go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from ...core import forks
from ...core.collection import no_collection
from ...core.errors import DeviceError, OperatorError, OutOfMemoryError
from .array import DeviceArray
from .checks import Check, Checks, Describe
from .device import Arguments, Grid, Run
from .driver import Driver, DriverError
from .memory import Block, capturing, is_capturing, Pool, Room, when_allowed
from .source import Source

RING = 512  # events of the compute stream that are kept

_bytes = np.dtype(np.uint8)


class CudaDevice:
    """See above. `index` is its number, `limit` the most bytes that it takes."""

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
        # Whoever marks may come here again: the collector ends an arena, which is freed behind what uses it.
        self._marking = forks.rlock()
        self._compiling = forks.lock()
        self._capture = forks.lock()  # held by who captures a graph
        self._captured_on: int | None = None  # the stream of those who bring none
        self.before_capture: list[Callable[[int], None]] = []  # told of a stream that is about to be captured
        self._functions: dict[tuple[Source, str], int] = {}
        self._modules: dict[Source, Any] = {}
        self.pool = Pool(self, driver, limit)
        self.checks = Checks(self)

    def __repr__(self) -> str:
        return f"gpu({self.index})"

    # -- memory ----------------------------------------------------------------------------------------

    def empty(self, nbytes: int) -> DeviceArray:
        """A 1-D uint8 array of `nbytes` from the pool, aligned to 256. Raises OutOfMemoryError."""
        return self._array(self.pool.block, nbytes)

    def arena(self, nbytes: int) -> DeviceArray:
        """A 1-D uint8 array that takes just `nbytes` of the device. Raises OutOfMemoryError."""
        return self._array(self.pool.exactly, nbytes)

    def _array(self, make: Callable[[int], Block], nbytes: int) -> DeviceArray:
        with self.active():
            if is_capturing():
                raise DeviceError(f"{nbytes} bytes asked of {self} while a CUDA graph is captured.")
            block = make(nbytes)
        return DeviceArray(block, block.address, (nbytes,), _bytes)

    def address(self, array: Any) -> int:
        """Where an array of this device begins."""
        if array.device is not self:
            raise DeviceError(f"A kernel on {self} was given an array on {array.device}.")
        return int(array.address)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes, whoever uses them."""
        with self.active():
            self.pool.tidy()
            return self.driver.memory()

    def room(self, blocks: Iterable[int], arena: int) -> Room:
        """What is free, and whether arrays of so many bytes each and then an arena can be had of it."""
        free, total = self.memory()
        return Room(free, total, self.pool.held(), self.pool.missing(blocks, arena, free))

    # -- kernels ---------------------------------------------------------------------------------------

    def function(self, source: Source, name: str) -> int:
        """The kernel `name` of `source`, compiled now or before."""
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
        """A slot in which a kernel of that operator notes what is wrong with its numbers."""
        return self.checks.slot(operation, describe, kind)

    # -- streams ---------------------------------------------------------------------------------------

    @property
    def stream(self) -> int:
        """Where this thread's launches go: the compute stream, or what `on` says."""
        return getattr(self._thread, "stream", None) or self.compute

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Inside, this thread's launches go to `stream`."""
        before = getattr(self._thread, "stream", None)
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside, this thread talks to this device, then again to what it did; its errors are noted.

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
        """In a forked child, which cannot use what its parent has on the device."""
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
        """The ticket of all that was put on the compute stream up to now."""
        with self._marking:
            ticket = self.issued + 1
            self.driver.record(self._ring[ticket % RING], self.compute)
            self.issued = ticket
        return ticket

    def let_wait(self, stream: int, ticket: int) -> None:
        """What is put on `stream` from now on comes after `ticket`. Costs the host no wait.

        A ticket that is yet to be issued stands for what is on the compute stream by now.
        """
        if ticket > self.issued:
            self.mark()
        if ticket > self._done:
            self.driver.wait(stream, self._ring[ticket % RING])

    def await_stream(self, stream: int) -> None:
        """What comes on the compute stream from now on comes after all that is on another library's now."""
        with self.active(), self._marking:
            if self._foreign is None:
                self._foreign = self.driver.event()
            self.driver.record(self._foreign, stream)
            self.driver.wait(self.compute, self._foreign)

    def wait_for(self, ticket: int) -> None:
        """Return when `ticket` is over; raises the fault of a kernel before it."""
        if ticket > self._done:
            with self.active():
                if ticket > self.issued:
                    self.mark()
                self.driver.synchronize_event(self._ring[ticket % RING])
                self._done = max(self._done, ticket)

    def synchronize(self) -> None:
        """Return when everything is done; raises the fault of a kernel."""
        with self.active():
            for stream in (self.compute, self.uploads, self.downloads):
                self.driver.synchronize(stream)

    def time(self, run: Run, repeats: int = 5) -> float:
        """Seconds of device time of one `run`: the least of several, after one that does not count."""
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
        """Copy from another device, where `source` is ready, after ticket `after`; done when it returns."""
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
        """Put on the current stream: every byte of `target` becomes `byte`."""
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
        """Give pinned memory back when no copy of ours has it any more: CUDA does not say that it waits."""
        self.synchronize()
        self.driver.host_free(address)

    # -- graphs ----------------------------------------------------------------------------------------

    def capture(self, runs: Sequence[Run], stream: int | None = None) -> CapturedGraph:
        """All that `runs` launch, as one graph. Nothing of it is done now.

        Raises what a run raises; the stream is usable afterwards.
        """
        with self._capture, self.active():
            if stream is None:
                self._captured_on = stream = self._captured_on or self.driver.stream()
            # An array that the garbage collector frees would be a call in the middle of it.
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
                        pass  # it was broken by what is raised already
                    raise
                graph = CapturedGraph(self, self.driver.end_capture(stream))
            try:  # now, while it can still be done without: its first launch is in the middle of a step
                self.driver.upload_graph(graph.handle, self.compute)
            except DriverError as error:
                if error.is_memory or error.is_lasting:
                    raise
            return graph

    @contextmanager
    def between_captures(self) -> Iterator[None]:
        """Inside, no other thread captures a graph."""
        if is_capturing():
            yield
        else:
            with self._capture:
                yield

    def come_to_rest(self) -> bool:
        """Wait until the device has done everything, for whomever. False while a thread captures a graph, of
        another library too, and after a fault, which the next use tells.

        CUDA refuses to wait for a device with a stream that is captured, and gives up the capture, whichever
        thread asks (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations").
        """
        if not self._capture.acquire(blocking=False):
            return False
        try:
            with self.active():  # a finalizer asks, too, on whatever thread
                self.driver.finish()
        except DeviceError:
            return False
        finally:
            self._capture.release()
        return True

    @property
    def is_capturing(self) -> bool:
        """Whether this thread's launches are noted instead of done."""
        return is_capturing()


class Launch:
    """One kernel with its arguments; called, it goes to the current stream."""

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
    """Launches that were captured together; called, all go to the current stream at once."""

    def __init__(self, device: CudaDevice, handle: int) -> None:
        self.device = device
        self.handle = handle

    def __call__(self) -> None:
        self.device.driver.launch_graph(self.handle, self.device.stream)

    def __del__(self) -> None:
        _end(self.device, self.device.driver.destroy_graph, self.handle)


class PinnedMemory:
    """Pinned host memory as a buffer of bytes, given back with the last array on it."""

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
    """What a finalizer does. Where the process ends, or the device is lost, nothing is left to be freed."""

    def end() -> None:
        try:
            if device.fault is None:
                call(handle)
        except Exception:
            pass

    try:
        when_allowed(end)
    except Exception:  # the interpreter ends, and its modules are empty
        pass
