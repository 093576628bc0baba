"""A driver that records every call and forwards it to another one, and queries on the records.

To attribute a call to a step of a program, set `step` around it; see `Marked`. While a stream
is captured, the records are nodes of a graph with the nodes that must be done before each: derived from
streams and events alone, so that it can be compared with the order that a plan demands.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mxlite.backends.gpu.runtime.device import blocks_capture, Run
from mxlite.backends.gpu.runtime.driver import Driver

WORK = ("launch", "copy", "fill")
"""Calls that put work on a stream; in a capture each is a node."""

HARMLESS = frozenset((*WORK, "activate", "restore", "record", "wait", "launch_graph", "has_come"))
"""Calls that neither allocate nor make the host wait."""


@dataclass(frozen=True)
class Note:
    """One call: `name`, the stream it was for (0: none), the addresses it was given, as (address, bytes) with
    bytes 0 where only the address is known, and the step it belongs to (-1: none).
    """

    name: str
    stream: int = 0
    addresses: tuple[tuple[int, int], ...] = ()
    step: int = -1


@dataclass
class RecordedGraph:
    """A capture: its nodes, and for each the nodes that are done when it starts."""

    nodes: list[Note] = field(default_factory=list)
    before: list[frozenset[int]] = field(default_factory=list)

    def order_of_steps(self, steps: range) -> list[tuple[int, ...]]:
        """For each of `steps` the earlier steps whose nodes are all done when its first node starts.

        A step without nodes is done when those are that it would have followed: it counts as waiting for all
        before it, which makes no observable difference.
        """
        of: dict[int, list[int]] = {s: [] for s in steps}
        for n, note in enumerate(self.nodes):
            if note.step in of:
                of[note.step].append(n)
        result = []
        for s in steps:
            over = self.before[of[s][0]] if of[s] else frozenset(range(len(self.nodes)))
            result.append(tuple(p for p in steps if p < s and over.issuperset(of[p])))
        return result


class RecordingDriver:
    """A recording Driver. `calls` are all so far; `graphs` are captures, by handle; `live` are the blocks of
    device memory, `pinned` those of host memory: address -> bytes.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver: Any = driver
        self.calls: list[Note] = []
        self.graphs: dict[int, RecordedGraph] = {}
        self.live: dict[int, int] = {}
        self.pinned: dict[int, int] = {}
        self.step = -1
        self._capture: RecordedGraph | None = None
        self._tails: dict[
            int, frozenset[int]
        ] = {}  # for each stream in the capture, the nodes that its next one follows
        self._events: dict[int, frozenset[int]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.driver, name)
        if not callable(found):
            return found

        def noted(*arguments: Any, **keywords: Any) -> Any:
            self._note(name, keywords.get("stream", 0))
            return found(*arguments, **keywords)

        return noted

    # -- memory ------------------------------------------------------------------------------------------

    def malloc(self, nbytes: int) -> int:
        self._note("malloc")
        address: int = self.driver.malloc(nbytes)
        self.live[address] = nbytes
        return address

    def free(self, address: int) -> None:
        self._note("free")
        self.driver.free(address)
        del self.live[address]

    def host_malloc(self, nbytes: int) -> int:
        self._note("host_malloc")
        address: int = self.driver.host_malloc(nbytes)
        self.pinned[address] = nbytes
        return address

    def host_free(self, address: int) -> None:
        self._note("host_free")
        self.driver.host_free(address)
        del self.pinned[address]

    # -- work --------------------------------------------------------------------------------------------

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._work("copy", stream, ((target, nbytes), (source, nbytes)))
        self.driver.copy(target, source, nbytes, stream)

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        self._work("fill", stream, ((target, nbytes),))
        self.driver.fill(target, byte, nbytes, stream)

    def launch(self, function: int, grid: Any, block: Any, shared: int, stream: int, arguments: Any) -> None:
        found = [v.value for v in arguments.values if isinstance(v, ctypes.c_void_p)]
        self._work("launch", stream, tuple((a, 0) for a in found if a))
        self.driver.launch(function, grid, block, shared, stream, arguments)

    def launch_graph(self, graph: int, stream: int) -> None:
        self._note("launch_graph", stream)
        self.driver.launch_graph(graph, stream)

    # -- order -------------------------------------------------------------------------------------------

    def record(self, event: int, stream: int) -> None:
        self._note("record", stream)
        if stream in self._tails:
            self._events[event] = self._tails[stream]
        else:
            self._events.pop(event, None)
        self.driver.record(event, stream)

    def wait(self, stream: int, event: int) -> None:
        self._note("wait", stream)
        if event in self._events and self._capture is not None:
            self._tails[stream] = self._tails.get(stream, frozenset()) | self._events[event]
        self.driver.wait(stream, event)

    def begin_capture(self, stream: int) -> None:
        self._note("begin_capture", stream)
        self.driver.begin_capture(stream)
        self._capture, self._tails = RecordedGraph(), {stream: frozenset()}

    def end_capture(self, stream: int) -> int:
        self._note("end_capture", stream)
        capture, self._capture, self._tails = self._capture, None, {}
        self._events.clear()
        handle: int = self.driver.end_capture(stream)
        assert capture is not None
        self.graphs[handle] = capture
        return handle

    # -- notes -------------------------------------------------------------------------------------------

    def _note(self, name: str, stream: int = 0) -> None:
        self.calls.append(Note(name, stream, (), self.step))

    def _work(self, name: str, stream: int, addresses: tuple[tuple[int, int], ...]) -> None:
        note = Note(name, stream, addresses, self.step)
        self.calls.append(note)
        if self._capture is not None and stream in self._tails:
            graph, tail = self._capture, self._tails[stream]
            graph.before.append(tail)
            graph.nodes.append(note)
            self._tails[stream] = tail | {len(graph.nodes) - 1}

    def is_live(self, address: int, nbytes: int = 0) -> bool:
        """True if these bytes are allocated now, on the device or as pinned memory. An array without elements
        may begin where a block ends.
        """
        return any(
            low <= address and address + nbytes <= low + size
            for blocks in (self.live, self.pinned)
            for low, size in blocks.items()
        )


class Marked:
    """A call whose records carry the number of its step."""

    def __init__(self, recorder: RecordingDriver, step: int, run: Run) -> None:
        self._recorder, self._step, self._run = recorder, step, run
        self.blocks_capture = blocks_capture(run)

    def __call__(self) -> None:
        self._recorder.step = self._step
        try:
            self._run()
        finally:
            self._recorder.step = -1


def marked(recorder: RecordingDriver, runs: Sequence[Run], first: int = 0) -> list[Callable[[], None]]:
    """`runs` as steps numbered from `first` on."""
    return [Marked(recorder, s, run) for s, run in enumerate(runs, first)]
