"""Recorder: which kernel ran when, on which thread. It watches the engine, and records as little as it can.

A bound program's segment is recorded as clock readings, one for each kernel; the kernels themselves are
looked up when the record is read (`Recorder.calls`). Workers append to lists, which happens wholly
or not at all, so there is no lock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from threading import get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple

from ..backends import Facts

SAMPLE_NS = 1_000_000  # the least time between two looks at resident memory


class RecordedCall(NamedTuple):
    """One kernel call, or one operation that is no kernel; times are nanoseconds of `perf_counter_ns`.

    `kind` is "program" (a step of a bound program), "operator" (an operation on arrays), "Custom Operator"
    (what an operator of the user's does inside; the name is MXNet's) or "engine" (anything else that was
    pushed: copies, assignments, closures of the user's).
    """

    thread: int
    start: int
    stop: int
    kind: str
    facts: Facts
    again: bool = False  # a step that the plan runs a second time


class Span(NamedTuple):
    """A stretch of time that the user named: a task, frame or event."""

    thread: int
    start: int
    stop: int
    category: str
    name: str


class Instant(NamedTuple):
    """A moment that the user marked; `scope` is "g", "p" or "t" as in the trace."""

    thread: int
    at: int
    category: str
    name: str
    scope: str


class Count(NamedTuple):
    """A number that changed."""

    at: int
    name: str
    series: str
    value: float


@dataclass(frozen=True)
class Wanted:
    """The kinds of calls to record."""

    programs: bool = True
    operators: bool = True
    memory: bool = True


class Recorder:
    """Everything recorded since it was created or `clear`ed. As a watcher of the engine it is a function."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.began = perf_counter_ns()
        self.threads: dict[int, str] = {}
        self.clear()

    def clear(self) -> None:
        self._segments: list[tuple[int, Any, int, list[int]]] = []
        self._calls: list[RecordedCall] = []
        self.spans: list[Span] = []
        self.instants: list[Instant] = []
        self.counts: list[Count] = []
        self._sampled = 0

    def __call__(self, fn: Callable[[], object], name: str, device: str, kind: str) -> Callable[[], object]:
        timed = getattr(fn, "timed", None)
        if timed is not None:
            if not self.wanted.programs:
                return fn
            run: Callable[[], object] = timed(self._note_segment)
            return run
        if not self.wanted.operators:
            return fn
        return partial(
            self._run, fn, "operator" if hasattr(name, "facts") else "engine", _facts(fn, name, kind)
        )

    def _run(self, fn: Callable[[], object], kind: str, facts: Facts) -> None:
        start = perf_counter_ns()
        try:
            fn()
        finally:
            self.note(start, kind, facts)

    def note(self, start: int, kind: str, facts: Facts) -> int:
        """Record a call that ends now, on this thread; when that is."""
        stop = perf_counter_ns()
        self._calls.append(RecordedCall(self.thread(), start, stop, kind, facts))
        self._sample(stop)
        return stop

    @contextmanager
    def inside(self, name: str) -> Iterator[CustomCall | None]:
        """A context in which an operator of the user's runs, called `name`; its parts are recorded."""
        if not self.wanted.operators:
            yield None
            return
        call = CustomCall(self, name)
        try:
            yield call
        finally:
            call.end_of_python()

    def _note_segment(self, sheet: Any, first: int, stamps: list[int]) -> None:
        self._segments.append((self.thread(), sheet, first, stamps))
        self._sample(stamps[-1])

    def thread(self) -> int:
        """The calling thread; its name is remembered."""
        me = get_ident()
        if me not in self.threads:
            self.threads[me] = threading.current_thread().name
        return me

    def _sample(self, now: int) -> None:
        if self.wanted.memory and now - self._sampled >= SAMPLE_NS:
            self._sampled = now
            if resident := resident_bytes():
                self.counts.append(Count(now, "memory", "resident in the process", resident))

    def calls(self) -> Iterator[RecordedCall]:
        """Every kernel call recorded, those of programs first."""
        for thread, sheet, first, stamps in self._segments:
            for s, (start, stop) in enumerate(pairwise(stamps), first):
                yield RecordedCall(thread, start, stop, "program", sheet.facts[s], sheet.again[s] > 0)
        yield from self._calls

    def counters(self) -> Iterator[Count]:
        """The user's counters, and bytes: planned at each step of a program, and measured."""
        if self.wanted.memory:
            for _, sheet, first, stamps in self._segments:
                # At both ends: the viewers draw a counter from each value to the next.
                for at in (stamps[0], stamps[-1]):
                    yield Count(at, "memory", "allocated by the program", sheet.measured_bytes)
                    yield Count(at, "memory", "planned for the program", sheet.planned_bytes)
                    if sheet.budget_bytes is not None:
                        yield Count(at, "memory", "budget of the program", sheet.budget_bytes)
                for s, at in enumerate(stamps[:-1], first):
                    yield Count(at, "arena", "planned live bytes", sheet.live_bytes[s])
        yield from self.counts


class CustomCall:
    """One call of an operator of the user's: the operations that it pushes, and the Python between them."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._since = perf_counter_ns()

    def __call__(self, fn: Callable[[], object], name: str, device: str, kind: str) -> Callable[[], object]:
        self.end_of_python()
        return partial(self._run, fn, _facts(fn, name, kind))

    def inside(self, name: str) -> AbstractContextManager[Any]:
        return self._recorder.inside(name)

    def end_of_python(self) -> None:
        """Record the stretch of Python that ends now."""
        self._note(Facts("pure_python", "pure_python", "Python", "", 0.0, 0))

    def _run(self, fn: Callable[[], object], facts: Facts) -> None:
        try:
            fn()
        finally:
            self._note(facts)

    def _note(self, facts: Facts) -> None:
        name = f"{self._name}::{facts.operator}"
        facts = replace(facts, name=name, operator=name)
        self._since = self._recorder.note(self._since, "Custom Operator", facts)


def _facts(fn: Callable[[], object], name: str, kind: str) -> Facts:
    """What is known of an operation about to be pushed."""
    facts: Callable[[], Facts] | None = getattr(name, "facts", None)
    if facts is not None:
        return facts()
    label = name or str(getattr(fn, "__qualname__", "operation"))
    return Facts(label, label, kind, "", 0.0, 0)


def resident_bytes() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
