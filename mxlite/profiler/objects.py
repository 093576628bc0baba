"""Marks of a program in its own trace: tasks, frames, events, counters, markers; as in MXNet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

from ..core import MXLiteError, nearest
from ..core.process import forks
from .recorder import Count, Instant, Span
from .session import SESSION


class Domain:
    """A category of tasks, frames, counters and markers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """A task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """A counter of this domain, at `value` if one is given."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A marker of this domain."""
        return Marker(self, name)


class _Stretch:
    """A span from `start()` to `stop()`, any number of times; also a `with` block."""

    def __init__(self, category: str, name: str) -> None:
        self.name = name
        self._category = category
        self._began: int | None = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        """Begin now."""
        self._began = perf_counter_ns()

    def stop(self) -> None:
        """End now; recorded if the profiler runs. Without a start nothing happens."""
        began, self._began = self._began, None
        if began is not None and SESSION.active:
            recorder = SESSION.recorder
            recorder.spans.append(
                Span(recorder.thread(), began, perf_counter_ns(), self._category, self.name)
            )

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Task(_Stretch):
    """A piece of work."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(domain.name, name)


class Frame(_Stretch):
    """A piece of work that is repeated, such as one image of a film."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(f"{domain.name},frame", name)


class Event(_Stretch):
    """A piece of work that belongs to no domain."""

    def __init__(self, name: str) -> None:
        super().__init__("event", name)


class Counter:
    """A number over time."""

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.name = name
        self._domain = domain
        self._value: float = 0
        self._lock = forks.lock()
        if value is not None:
            self.set_value(value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: float) -> None:
        """Set the counter."""
        with self._lock:
            self._value = value
            self._note()

    def increment(self, delta: float = 1) -> None:
        """Add `delta` to the counter."""
        with self._lock:
            self._value += delta
            self._note()

    def decrement(self, delta: float = 1) -> None:
        """Subtract `delta` from the counter."""
        self.increment(-delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self

    def _note(self) -> None:
        if SESSION.active:
            SESSION.recorder.counts.append(
                Count(perf_counter_ns(), self._domain.name, self.name, self._value)
            )


_SCOPES = {"global": "g", "process": "p", "thread": "t", "task": "t", "marker": "t"}


class Marker:
    """A moment in time."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._domain = domain

    def __str__(self) -> str:
        return self.name

    def mark(self, scope: str = "process") -> None:
        """Record the current moment. `scope`: its line's extent in the trace, global, process or thread."""
        if scope not in _SCOPES:
            raise MXLiteError(
                f"mark: scope must be one of {tuple(_SCOPES)}, got {scope!r}.{nearest(str(scope), _SCOPES)}"
            )
        if SESSION.active:
            recorder = SESSION.recorder
            recorder.instants.append(
                Instant(recorder.thread(), perf_counter_ns(), self._domain.name, self.name, _SCOPES[scope])
            )


@contextmanager
def scope(name: str = "<unk>:") -> Iterator[None]:
    """`with mx.profiler.scope("load:"):` shows the block in the trace, in the row of the thread that runs it.

    In MXNet it prefixes the names of allocations on a GPU.
    """
    stretch = Event(name)
    stretch.start()
    try:
        yield
    finally:
        stretch.stop()
