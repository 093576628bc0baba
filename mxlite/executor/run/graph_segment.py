"""All calls of a program's pass on a GPU as one operation of the engine, and as one CUDA graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple

from ...backends.remote import Graph, GraphError, Remote, Stopwatch
from ...engine import SWITCHING, Var, Vars
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

    def __init__(
        self, done: Var, first: int, sheet: Sheet, make: Callable[..., Graph], remote: Remote
    ) -> None:
        self.done = done
        self.first = first
        self.sheet = sheet
        self._make = make
        self._remote = remote
        self._graph: Graph | None = None
        self._has_told = False
        self.advance: Run | None = None
        self.failed: Run | None = None
        self._watch: Stopwatch | None = None
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
                self._remote.name_checks(call, name)
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
        with SWITCHING, self._remote.active():
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
                ticket = self._remote.mark()
                for var in vars:
                    var.fence = ticket

    def run_timed(self, told: Sequence[Told], vars: Sequence[Var], record: Record) -> None:
        """The same with events around each call, without a graph; `record` is told device times."""
        watch = self._watch = self._watch or self._remote.stopwatch()
        watch.start(len(self.calls) + 1)
        began = perf_counter_ns()
        try:
            self.run(told, vars, watch)
        finally:
            if seconds := watch.seconds():
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
