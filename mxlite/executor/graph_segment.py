"""All calls of a program's pass on a GPU as one operation of the engine, and as one CUDA graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple

from ..backends.gpu.checks import name_checks
from ..backends.gpu.graph import Graph, GraphError
from ..engine import SWITCHING, Var, Vars
from .segment import fail, Record, Run
from .sheet import Sheet


class Told(NamedTuple):
    """An action in the same operation before a program runs, and the Vars it touches."""

    run: Run
    reads: tuple[Var, ...] = ()
    writes: tuple[Var, ...] = ()


class GraphSegment:
    """Segment on a GPU: the calls of steps from `first` on, from which `graph` is made. To push it, use
    `operation`. `advance` comes before the first call, in the same graph: it belongs to no
    step. `failed` is called when a run has failed, because then it may or may not have advanced.
    """

    def __init__(self, done: Var, first: int, sheet: Sheet, make: Callable[..., Graph]) -> None:
        self.done = done
        self.first = first
        self.sheet = sheet
        self._make = make
        self._graph: Graph | None = None
        self._has_told = False
        self.advance: Run | None = None
        self.failed: Run | None = None
        self._events: list[int] = []
        self.calls: list[Run] = []
        self.names: list[str] = []
        self.reads: tuple[Var, ...] = ()
        self.writes: tuple[Var, ...] = ()
        self.held = Vars(), Vars()

    @property
    def graph(self) -> Graph:
        """The graph of the calls as they were on first use, or since `forget`."""
        if self._graph is None:
            for call, name in zip(self.calls, self.names):
                name_checks(call, name)
            self._graph = self._make(self.calls, prologue=self.advance)
        return self._graph

    def forget(self) -> None:
        """Have the graph created anew, because a call was changed."""
        self._graph = None

    @property
    def why_not(self) -> dict[str, str]:
        """Calls outside of graphs by name, with the reasons."""
        return {self.names[i]: why for i, why in self.graph.why_not.items()}

    def operation(self, told: Sequence[Told], vars: Sequence[Var]) -> Operation:
        """The operation to push: `told`, then the calls. `vars` are all that it touches."""
        return Operation(self, told, vars)

    def run(self, told: Sequence[Told], vars: Sequence[Var], look: Callable[[], None] | None = None) -> None:
        """Put everything on the device. `look` is called at the start and after each call."""
        graph = self.graph
        device = graph.device
        with SWITCHING, device.active():
            try:
                for t in told:
                    t.run()
                if look is None:
                    graph()
                    if not self._has_told and graph.is_complete:
                        self._tell(graph)
                else:
                    look()
                    graph.one_by_one(look)
            except BaseException as error:
                if self.failed is not None:
                    self.failed()
                if isinstance(error, GraphError):
                    fail(self.names[error.place], error.__cause__)
                raise
            finally:
                ticket = device.mark()
                for var in vars:
                    var.fence = ticket

    def run_timed(self, told: Sequence[Told], vars: Sequence[Var], record: Record) -> None:
        """The same with events around each call, without a graph; `record` gets device times."""
        device = self.graph.device
        driver = device.driver
        with device.active():
            while len(self._events) <= len(self.calls):
                self._events.append(driver.event(timed=True))
        recorded: list[int] = []
        began = perf_counter_ns()

        def look() -> None:
            recorded.append(self._events[len(recorded)])
            driver.record(recorded[-1], device.compute)

        try:
            self.run(told, vars, look)
        finally:
            if recorded:
                with device.active():
                    driver.synchronize_event(recorded[-1])
                    seconds = [driver.seconds(recorded[0], e) for e in recorded]
                record(self.sheet, self.first, [began + round(1e9 * s) for s in seconds])

    def _tell(self, graph: Graph) -> None:
        """Log once what is outside of graphs."""
        self._has_told = True
        if graph.why_not:
            reasons = list(dict.fromkeys(graph.why_not.values()))
            more = "" if len(reasons) < 4 else f" (and {len(reasons) - 3} more reasons)"
            logging.getLogger("mxlite").info(
                "%d of %d calls on %s stay outside of CUDA graphs: %s%s",
                len(graph.why_not), len(self.calls), graph.device, "; ".join(reasons[:3]), more,
            )  # fmt: skip


class Operation:
    """One run of a segment."""

    __slots__ = ("_segment", "_told", "_vars")

    def __init__(self, segment: GraphSegment, told: Sequence[Told], vars: Sequence[Var]) -> None:
        self._segment, self._told, self._vars = segment, told, vars

    def __call__(self) -> None:
        self._segment.run(self._told, self._vars)

    def timed(self, record: Record) -> Run:
        """The same, with times; see Segment."""
        return partial(self._segment.run_timed, self._told, self._vars, record)
