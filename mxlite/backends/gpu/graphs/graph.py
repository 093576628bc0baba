"""A list of calls that becomes a CUDA graph: run one by one at first, then captured, then replayed.

    first time      call, call, call ...        compiles, loads, measures; in the list's own order
    second time     captured, then launched     on streams and events as `Order` says
    from then on    launched                    one call of the driver for all of them

A call that cannot be captured (it runs on the host, say) splits the list: the segments between such calls
are graphs of their own, and it is made between their launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from ....core.errors import DeviceError
from ....core.process import forks
from ...remote import GraphError
from ..runtime.cuda_device import CapturedGraph, CudaDevice
from ..runtime.device import blocks_capture, Run
from ..runtime.driver import DriverError
from .graph_streams import Order

SHORTEST = 2
"""Fewest calls that are worth a graph between two that cannot be captured."""

TRIES = 3
"""Attempts to capture a segment: a wait for the whole device, by any thread or library, ends a capture."""


@contextmanager
def _at(place: int) -> Iterator[None]:
    """Context of the call at `place`. A fault that shows in it may be that of any earlier kernel."""
    try:
        yield
    except Exception as error:
        if isinstance(error, DriverError) and error.is_lasting:
            raise
        raise GraphError(place) from error


class HostCopy:
    """A copy of bytes between a device and pinned host memory, in either direction, on the current stream."""

    __slots__ = ("device", "nbytes", "source", "target")

    def __init__(self, device: CudaDevice, target: Any, source: Any) -> None:
        assert target.nbytes == source.nbytes
        self.device, self.nbytes = device, target.nbytes
        self.target, self.source = _address(target), _address(source)

    def __call__(self) -> None:
        if self.nbytes:
            self.device.driver.copy(self.target, self.source, self.nbytes, self.device.stream)


def _address(array: Any) -> int:
    return int(array.address if hasattr(array, "address") else array.ctypes.data)


class Graph:
    """Calls [start, start + len(calls)) of a program, on a device. `order` is that of all its steps.

    `prologue` comes before all of them, in the same graph.

    `why_not` gives the reasons why calls stay outside of graphs, by place; it is complete after the second
    run.
    """

    def __init__(
        self,
        device: CudaDevice,
        calls: Sequence[Run],
        order: Order,
        start: int = 0,
        prologue: Run | None = None,
    ) -> None:
        self.device = device
        self.calls = tuple(calls)
        self.order = order
        self.start = start
        self.prologue = prologue
        self.why_not: dict[int, str] = {
            i: why for i, call in enumerate(self.calls) if (why := blocks_capture(call)) is not None
        }
        self._has_run = False
        self._pieces: list[tuple[int, Run]] = []  # place of the first call in it, and its run

    @property
    def graphs(self) -> int:
        """Number of graphs so far."""
        return sum(isinstance(run, CapturedGraph) for _, run in self._pieces)

    @property
    def is_complete(self) -> bool:
        """True if everything that can be captured has been."""
        return bool(self._pieces)

    def __call__(self) -> None:
        """Put all of it on the compute stream. Raises GraphError."""
        if not self._pieces:
            if not self._has_run:  # a first run may load kernels, which a capture does not allow
                self.one_by_one()
                self._has_run = True
                return
            self._pieces = self._captured()
        for place, run in self._pieces:
            with _at(place):
                run()

    def one_by_one(self, after: Callable[[], None] | None = None) -> None:
        """Run the calls without a graph, on one stream; `after` is called after each call."""
        if self.prologue is not None:
            self.prologue()
        for place, call in enumerate(self.calls):
            with _at(place):
                call()
            if after is not None:
                after()

    # -- capturing -------------------------------------------------------------------------------------

    def _captured(self) -> list[tuple[int, Run]]:
        pieces: list[tuple[int, Run]] = []
        first = 0
        if self.prologue is not None and not self._is_graph(0, min(self.why_not, default=len(self.calls))):
            pieces.append((0, self.prologue))
        for place in (*sorted(self.why_not), len(self.calls)):
            if self._is_graph(first, place):
                pieces += self._stretch(first, place)
            else:
                pieces += enumerate(self.calls[first:place], first)
            if place < len(self.calls):
                pieces.append((place, self.calls[place]))
            first = place + 1
        return pieces

    def _is_graph(self, first: int, stop: int) -> bool:
        """True if calls [first, stop), all between two that cannot be captured, become a graph."""
        return stop - first >= SHORTEST or (first == 0 and stop == len(self.calls) > 0)

    def _stretch(self, first: int, stop: int) -> list[tuple[int, Run]]:
        """Calls [first, stop) as a graph; one by one if the driver refuses that or has no room for it.

        The memory of the graph itself is not part of a plan.
        """
        scratch = _scratch_of(self.device)
        prologue = self.prologue if first == 0 else None
        low, high = self.start + first, self.start + stop
        awaited = _awaited(self.order, low, high)

        def launch_all() -> None:
            if prologue is not None:
                prologue()
            scratch.fork(self.device.on, self.order, low, high, awaited, self._call_of, failed)

        why = ""
        for _ in range(TRIES):
            failed: list[int] = []
            try:
                with scratch.lock, self.device.active():
                    scratch.prepare(max(self.order.stream[low:high], default=0), len(awaited))
                    return [(first, self.device.capture([launch_all], scratch.stream(0)))]
            except DeviceError as error:
                if isinstance(error, DriverError) and error.is_lasting:
                    raise
                why = why or f"capturing it failed: {error}"
            except Exception as error:
                raise GraphError(first + failed[0] if failed else first) from error
        for place in range(first, stop):
            self.why_not.setdefault(place, why)
        start = [] if prologue is None else [(first, prologue)]
        return [*start, *enumerate(self.calls[first:stop], first)]

    def _call_of(self, step: int) -> Run:
        return self.calls[step - self.start]


_FORK = 0  # number of the event at which streams fork, and of that at which they join


def _awaited(order: Order, start: int, stop: int) -> dict[int, int]:
    """The steps in [start, stop) that another stream waits for there, each with the number of an event."""
    steps = {p for s in range(start, stop) for p in order.waits[s] if p >= start}
    return {p: n for n, p in enumerate(sorted(steps), _FORK + 1)}


class _Scratch:
    """Streams and events for captures on one device; between two captures they mean nothing."""

    def __init__(self, device: CudaDevice) -> None:
        self.lock = forks.lock()
        self._driver = device.driver  # not the device, which its scratch would otherwise keep alive
        self._streams: list[int] = []
        self._events: list[int] = []

    def prepare(self, last_stream: int, events: int) -> None:
        """Create what is missing, since nothing can be created while a stream is captured."""
        while len(self._streams) <= last_stream:
            self._streams.append(self._driver.stream())
        while len(self._events) <= events:
            self._events.append(self._driver.event())

    def stream(self, number: int) -> int:
        return self._streams[number]

    def fork(
        self,
        on: Callable[[int], AbstractContextManager[None]],
        order: Order,
        start: int,
        stop: int,
        awaited: dict[int, int],
        call_of: Callable[[int], Run],
        failed: list[int],
    ) -> None:
        """Call steps [start, stop), each on its stream after what `order` says, while stream 0 is captured.

        `on(stream)` sets where launches go. A stream that takes part begins after an event of stream 0,
        and stream 0 ends after all of them.
        """
        driver, streams, events = self._driver, self._streams, self._events
        used = {0}
        driver.record(events[_FORK], streams[0])
        for s in range(start, stop):
            number = order.stream[s]
            if number not in used:
                used.add(number)
                driver.wait(streams[number], events[_FORK])
            for p in order.waits[s]:
                if p >= start:
                    driver.wait(streams[number], events[awaited[p]])
            try:
                with on(streams[number]):
                    call_of(s)()
            except Exception:
                failed.append(s - start)
                raise
            if s in awaited:
                driver.record(events[awaited[s]], streams[number])
        for number in sorted(used - {0}):
            driver.record(events[_FORK], streams[number])
            driver.wait(streams[0], events[_FORK])


_lock = forks.lock()
_scratches: WeakKeyDictionary[CudaDevice, _Scratch] = WeakKeyDictionary()


def _scratch_of(device: CudaDevice) -> _Scratch:
    with _lock:
        found = _scratches.get(device)
        if found is None:
            found = _scratches[device] = _Scratch(device)
        return found
