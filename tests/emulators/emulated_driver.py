"""A GPU's driver on the CPU that does everything as late, and in as strange an order, as CUDA might.

What is put on a stream waits there until somebody has to wait for it; then streams take turns at random, held
back only by events. So a wait that is missing shows as a wrong number. Kernels are compiled by g++, see
emulated_device.py. Graphs keep the order that streams and events had while they were captured, and no more.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxlite import DeviceError
from mxlite.backends.gpu import drivers_of
from mxlite.backends.gpu.runtime.driver import DriverError
from tests.emulators.emulated_device import _library, refusal
from tests.emulators.emulated_extents import Range, words_of

_one_kernel = threading.RLock()  # of all devices: what threads of a block share is static in cuda_on_cpu.h
# A finalizer may wait for a device, and so run its kernels, wherever Python collects garbage.
talking = threading.local()
PIECE = 2 * 2**20  # bytes
LATE = 0.2  # how likely a call makes the streams go on by a step


def talks_to() -> int:
    """The device, or what else, that this thread talks to."""
    return getattr(talking, "to", 0)


@dataclass
class Event:
    recorded: int = 0  # how often it was recorded
    come: int = 0  # and how many of these are over
    time: float = 0.0
    nodes: frozenset[int] | None = None  # what it stands for in a capture


@dataclass
class Stream:
    work: deque[tuple[str, Any]] = field(default_factory=deque)
    capture: Capture | None = None
    last: frozenset[int] = frozenset()  # nodes of the capture that the next one comes after


@dataclass
class Later:
    """Work that waits for other devices: `begin` is called when its turn has come, and what it returns until
    that is true.
    """

    begin: Callable[[], Callable[[], bool]]
    poll: Callable[[], bool] | None = None
    is_over: bool = False

    def again(self) -> Later:
        """The same work, not yet begun."""
        return Later(self.begin)

    def may_end(self) -> bool:
        if not self.is_over:
            self.poll = self.poll or self.begin()
            self.is_over = self.poll()
        return self.is_over


@dataclass
class Launched:
    """A graph under way: its work, and for each what is left to be over before it."""

    work: dict[int, tuple[str, Any]]
    before: list[frozenset[int]]

    def ready(self) -> list[int]:
        """The work that may be done, or may end."""
        free = [i for i in self.work if not self.before[i] & self.work.keys()]
        return [i for i in free if not isinstance(self.work[i][1], Later) or self.work[i][1].may_end()]


@dataclass
class Capture:
    thread: int
    origin: int
    nodes: list[tuple[tuple[str, Any], frozenset[int]]] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)
    is_valid: bool = True


def pieces(nbytes: int) -> int:
    """What CUDA takes of a device for an allocation: it maps 2 MiB at once."""
    return -(-nbytes // PIECE) * PIECE


class EmulatedDriver:
    """See Driver. `capacity` bytes of memory; `seed` is that of the order."""

    name = "emulated GPU"
    architecture = "sm_90"
    multiprocessors = 2
    shared_bytes = 227 * 1024

    def __init__(self, index: int = 0, capacity: int = 2**30, seed: int = 0, late: float = LATE) -> None:
        self.index, self.capacity, self.late = index, capacity, late
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.memory_of: dict[int, np.ndarray] = {}
        self.pinned_of: dict[int, np.ndarray] = {}
        self.taken = 0
        self.used = 0  # with what is left of the pieces in which memory is given
        self.most_taken = 0
        self.elsewhere = 0  # bytes of other processes
        self.streams = {1: Stream(), 2: Stream()}  # CUDA's legacy and per-thread default streams
        self.events: dict[int, Event] = {}
        self.functions: dict[int, Any] = {}
        self.graphs: dict[int, Capture] = {}
        self.is_busy = False  # inside a step
        self.freed_later: list[int] = []
        self.unpinned: list[np.ndarray] = []  # given back too early, and kept for what still names it
        self.fault: DriverError | None = None
        self.log: list[tuple[str, Any]] = []
        self.launched = 0
        self.nccl_module: Any = None
        self.idle: Callable[[], bool] = lambda: False  # lets other devices go on
        self._next = 2

    def _handle(self) -> int:
        self._next += 1
        return self._next

    # -- memory ----------------------------------------------------------------------------------------

    def activate(self) -> int | None:
        self._look()
        before = talks_to()
        talking.to = id(self)
        return None if before == id(self) else before

    def restore(self, before: int) -> None:
        talking.to = before

    def blas(self):
        return None

    def nccl(self):
        if self.nccl_module is None:
            raise DeviceError("NCCL is not emulated here.")
        return self.nccl_module

    def place(self) -> tuple[str, int]:
        return f"emulated {self.index}", 1

    def memory(self) -> tuple[int, int]:
        self._look()
        return max(0, self.capacity - self.used - self.elsewhere), self.capacity

    def malloc(self, nbytes: int) -> int:
        self._look()
        with self.lock:
            self._refuse_while_captured("an allocation")
            if self.used + self.elsewhere + pieces(nbytes) > self.capacity:
                raise DriverError("out of memory", name="cudaErrorMemoryAllocation", is_memory=True)
            block = np.full(nbytes + 256, 0xCD, np.uint8)
            start = -block.ctypes.data % 256
            address = int(block.ctypes.data) + start
            self.memory_of[address] = block[start : start + nbytes]
            self.taken += nbytes
            self.used += pieces(nbytes)
            self.most_taken = max(self.most_taken, self.taken)
            return address

    def free(self, address: int) -> None:
        with self.lock:
            if self.is_busy:  # a finalizer's, in the middle of a step
                self.freed_later.append(address)
                return
            self._refuse_while_captured("a free")
            self._finish(lambda: not any(s.work for s in self.streams.values()))
            block = self.memory_of.pop(address)
            block.fill(0xDD)
            self.taken -= block.nbytes
            self.used -= pieces(block.nbytes)

    def host_malloc(self, nbytes: int) -> int:
        self._look()
        block = np.full(max(nbytes, 1), 0xCD, np.uint8)
        self.pinned_of[int(block.ctypes.data)] = block
        return int(block.ctypes.data)

    def host_free(self, address: int) -> None:
        with self.lock:  # CUDA may wait for nothing here
            block = self.pinned_of.pop(address)
            if any(s.work for s in self.streams.values()):
                block.fill(0xDD)
                self.unpinned.append(block)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._put(stream, "copy", lambda: ctypes.memmove(target, source, nbytes))

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        self._put(stream, "fill", lambda: ctypes.memset(target, byte, nbytes))

    # -- streams and events ------------------------------------------------------------------------------

    def stream(self) -> int:
        self._look()
        handle = self._handle()
        self.streams[handle] = Stream()
        return handle

    def synchronize(self, stream: int) -> None:
        with self.lock:
            self._refuse_while_captured("a wait for a stream")
            self._finish(lambda: not self.streams[stream].work)
        self._look()

    def finish(self) -> None:
        with self.lock:
            captures = [s.capture for s in self.streams.values() if s.capture is not None]
            if captures:  # of whatever thread; each of them is given up
                for capture in captures:
                    capture.is_valid = False
                text = "a wait for the device while a stream is captured"
                raise DriverError(text, name="cudaErrorStreamCaptureUnsupported")
            self._finish(lambda: not any(s.work for s in self.streams.values()))
        self._look()

    def event(self, timed: bool = False) -> int:
        handle = self._handle()
        self.events[handle] = Event()
        return handle

    def record(self, event: int, stream: int) -> None:
        with self.lock:
            self._look()
            e, s = self.events[event], self.streams[stream]
            if s.capture is not None:
                self._require_valid(s.capture)
                e.nodes = s.last
                return
            e.nodes = None
            e.recorded += 1
            number = e.recorded

            def come() -> None:
                e.come, e.time = number, self.launched * 1e-6

            s.work.append(("event", come))
            self._go_on()

    def wait(self, stream: int, event: int) -> None:
        with self.lock:
            self._look()
            e, s = self.events[event], self.streams[stream]
            if e.nodes is not None:
                capture = next(s.capture for s in self.streams.values() if s.capture is not None)
                if s.capture is None:
                    s.capture, s.last = capture, frozenset()
                    capture.streams.add(stream)
                self._require_valid(s.capture)
                s.last |= e.nodes
                return
            if s.capture is not None:
                raise DriverError(
                    "an event from outside in a capture", name="cudaErrorStreamCaptureIsolation"
                )
            s.work.append(("wait", (e, e.recorded)))
            self._go_on()

    def synchronize_event(self, event: int) -> None:
        with self.lock:
            self._refuse_while_captured("a wait for an event")
            e = self.events[event]
            number = e.recorded
            self._finish(lambda: e.come >= number)
        self._look()

    def has_come(self, event: int) -> bool:
        e = self.events[event]
        return e.come == e.recorded

    def seconds(self, first: int, second: int) -> float:
        return self.events[second].time - self.events[first].time

    # -- kernels and graphs --------------------------------------------------------------------------------

    def load(self, source: Any) -> Any:
        return _library(source)

    def function(self, module: Any, name: str) -> int:
        handle = self._handle()
        self.functions[handle] = module[name]
        return handle

    def launch(self, function: int, grid: Any, block: Any, shared: int, stream: int, arguments: Any) -> None:
        kernel = self.functions[function]
        if (why := refusal(kernel, grid, block, shared, self.shared_bytes, arguments)) is not None:
            raise DriverError(why, name="cudaErrorInvalidConfiguration")
        numbers = ctypes.c_uint * 3

        def run() -> None:
            with _one_kernel:
                ranges = self._blocks(arguments)
                size, pointers = (numbers(*grid), numbers(*block)), arguments.pointers
                kernel.bounds(ranges, len(ranges))
                failure = kernel(*size, pointers)
            if failure is not None:
                text = f"{kernel.name}: {failure.decode()}"
                self.fault = DriverError(text, name="cudaErrorLaunchFailure", is_lasting=True)

        self._put(stream, kernel.name, run)

    def _blocks(self, arguments: Any) -> Any:
        """The memory that is there when a kernel runs and that its arguments name."""
        found = {}
        for value in words_of(arguments):
            for blocks in (self.memory_of, self.pinned_of):
                for start, block in blocks.items():
                    if start <= value <= start + block.nbytes:
                        found[start] = start + block.nbytes
        return (Range * len(found))(*found.items())

    def begin_capture(self, stream: int) -> None:
        with self.lock:
            self._look()
            capture = Capture(threading.get_ident(), stream)
            capture.streams.add(stream)
            self.streams[stream].capture = capture
            self.streams[stream].last = frozenset()

    def end_capture(self, stream: int) -> int:
        with self.lock:
            capture = self.streams[stream].capture
            assert capture is not None and capture.origin == stream
            last = self.streams[stream].last
            loose = set(range(len(capture.nodes))) - self._before(capture, last)
            for s in capture.streams:
                self.streams[s].capture = None
            self._require_valid(capture)
            if loose:
                raise DriverError(f"{len(loose)} nodes not joined", name="cudaErrorStreamCaptureUnjoined")
            handle = self._handle()
            self.graphs[handle] = capture
            return handle

    @staticmethod
    def _require_valid(capture: Capture) -> None:
        if not capture.is_valid:
            text = "somebody has waited for the device while this was captured"
            raise DriverError(text, name="cudaErrorStreamCaptureInvalidated")

    @staticmethod
    def _before(capture: Capture, last: frozenset[int]) -> set[int]:
        """`last` and all that must be over before it."""
        found, rest = set(last), list(last)
        while rest:
            for n in capture.nodes[rest.pop()][1] - found:
                found.add(n)
                rest.append(n)
        return found

    def upload_graph(self, graph: int, stream: int) -> None:
        with self.lock:
            self._refuse_while_captured("an upload of a graph")
            assert graph in self.graphs and stream in self.streams

    def launch_graph(self, graph: int, stream: int) -> None:
        nodes = self.graphs[graph].nodes
        work = {i: (w, g.again() if isinstance(g, Later) else g) for i, ((w, g), _) in enumerate(nodes)}
        self._put(stream, "graph", Launched(work, [before for _, before in nodes]))

    def destroy_graph(self, graph: int) -> None:
        with self.lock:
            self._finish(lambda: not any(s.work for s in self.streams.values()))
            del self.graphs[graph]

    # -- how it goes on --------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _put(self, stream: int, what: str, run: Any) -> None:
        with self.lock:
            self._look()
            s = self.streams[stream]
            if s.capture is not None:
                if s.capture.thread != threading.get_ident():
                    raise DriverError("two threads in one capture", name="cudaErrorStreamCaptureWrongThread")
                self._require_valid(s.capture)
                s.capture.nodes.append(((what, run), s.last))
                s.last = frozenset((len(s.capture.nodes) - 1,))
                return
            s.work.append((what, run))
            self._go_on()

    def _run(self, what: str, run: Any) -> None:
        if self.fault is None:
            if not isinstance(run, Later | Launched):
                run()
            self.launched += 1
            self.log.append((what, None))

    def _go_on(self) -> None:
        if self.random.random() >= self.late:
            return
        self._step()

    def _step(self) -> bool:
        """One piece of work of any stream that may go on; False if there is none."""
        ready = [s for s in self.streams.values() if s.work and self._may_go_on(*s.work[0])]
        if not ready:
            return False
        stream = self.random.choice(ready)
        what, given = stream.work[0]
        inside = given.ready() if isinstance(given, Launched) and self.fault is None else []
        if not inside:
            stream.work.popleft()
        self.is_busy = True
        try:
            if isinstance(given, Launched) and inside:
                self._run(*given.work.pop(self.random.choice(inside)))
            elif what == "event":
                given()
            elif what != "wait":
                self._run(what, given)
        finally:
            self.is_busy = False
        while self.freed_later:
            self.free(self.freed_later.pop())
        return True

    def _may_go_on(self, what: str, given: Any) -> bool:
        if self.fault is not None and isinstance(given, Later | Launched):
            return True
        if isinstance(given, Launched):
            return not given.work or bool(given.ready())
        if isinstance(given, Later):
            return given.may_end()
        return what != "wait" or given[0].come >= given[1]

    def go_on_by_itself(self) -> None:
        """Let the streams go on while nobody waits for them, as other processes wait for what they send."""

        def go_on() -> None:
            while True:
                with self.lock:
                    self._step()
                time.sleep(2e-4)

        threading.Thread(target=go_on, daemon=True, name="emulated GPU").start()

    def _finish(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            assert self._step() or self.idle(), "streams wait for each other"

    def _refuse_while_captured(self, what: str) -> None:
        me = threading.get_ident()
        if any(s.capture is not None and s.capture.thread == me for s in self.streams.values()):
            raise DriverError(f"{what} while a stream is captured", name="cudaErrorStreamCaptureUnsupported")


@contextmanager
def emulated_gpus(**how: Any) -> Any:
    """Inside, `mx.gpu(i)` is an EmulatedDriver made with `how`; yields the dict of those that were opened."""
    opened: dict[int, EmulatedDriver] = {}
    count = how.pop("count", 4)

    def open_driver(index: int) -> EmulatedDriver:
        opened[index] = EmulatedDriver(index, **how)
        return opened[index]

    with drivers_of(open_driver, count):
        yield opened
