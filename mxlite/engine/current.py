"""The engine of this process, which everybody uses unless told otherwise; and the one inside an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import get_ident

from ..core import config
from ..core.errors import EngineError
from .engine import Engine
from .inline import InlineEngine
from .naive import NaiveEngine
from .threaded import ThreadedEngine
from .watched import WatchedEngine, Watcher

_KINDS: dict[str, Callable[[], Engine]] = {"naive": NaiveEngine, "threaded": ThreadedEngine}
_current: dict[str, Engine] = {}
_own: dict[int, list[Engine]] = {}  # of threads inside `inline_engine` or `unwatched`, by thread
_bulk_size = 0  # the last argument of `set_bulk_size`


def get_engine() -> Engine:
    """The process-wide engine; the first call makes it, of the kind given by `MXLITE_ENGINE`.

    Inside `inline_engine()` or `unwatched()` it is the one of that scope.
    """
    if _own:
        stack = _own.get(get_ident())
        if stack:
            return stack[-1]
    engine = _current.get("engine")
    if engine is None:
        # Two threads may both make one; setdefault lets one win, and an engine without work has no threads.
        engine = _current.setdefault("engine", _make(config.engine_kind()))
    return engine


def set_engine(engine: Engine | str) -> Engine:
    """Use `engine` (or a new one: "threaded", "naive") from now on; returns the old one, drained.

    A failure in the old one that nobody has seen is raised here, after the change.
    """
    new = _make(engine) if isinstance(engine, str) else engine
    old = get_engine()
    try:
        old.wait_all()
    finally:
        if isinstance(old, WatchedEngine) and not isinstance(new, WatchedEngine):
            new = WatchedEngine(new, old.watcher)
        _current["engine"] = new
    return old.inner if isinstance(old, WatchedEngine) else old


def watch(watcher: Watcher | None) -> None:
    """Show `watcher` everything that is pushed on the process-wide engine from now on; None ends that.

    Code that holds the engine from before goes on pushing unseen.
    """
    engine = _current.get("engine") or _current.setdefault("engine", _make(config.engine_kind()))
    bare = engine.inner if isinstance(engine, WatchedEngine) else engine
    _current["engine"] = bare if watcher is None else WatchedEngine(bare, watcher)


@contextmanager
def unwatched() -> Iterator[None]:
    """A context in which this thread's pushes are shown to no watcher."""
    engine = get_engine()
    with _pushed_to(engine.inner if isinstance(engine, WatchedEngine) else engine):
        yield


@contextmanager
def _pushed_to(engine: Engine) -> Iterator[None]:
    """A context in which this thread pushes to `engine`."""
    me = get_ident()
    stack = _own.setdefault(me, [])
    stack.append(engine)
    try:
        yield
    finally:
        stack.pop()
        if not stack:
            del _own[me]


@contextmanager
def use_engine(engine: Engine | str) -> Iterator[Engine]:
    """Use another engine inside a `with use_engine("naive") as engine:` block. Stops an engine it made."""
    new = _make(engine) if isinstance(engine, str) else engine
    old = set_engine(new)
    try:
        yield new
    finally:
        try:
            set_engine(old)
        finally:
            if new is not engine:
                new.stop()


@contextmanager
def inline_engine(name: str = "") -> Iterator[Engine]:
    """A context inside an operation: this thread's pushes run at once, on this thread.

    So user code that is part of an operation can call whatever it likes, and waits for nobody: there is no
    deadlock, even with one worker. Raises the first failure that nobody has seen when the scope ends.
    Watchers are told `name`.
    """
    engine = InlineEngine()
    outside = _current.get("engine")
    inside = outside.watcher.inside(name) if isinstance(outside, WatchedEngine) else nullcontext()
    with inside as watcher, _pushed_to(engine if watcher is None else WatchedEngine(engine, watcher)):
        yield engine
        engine.wait_all()


def bulk(size: int) -> AbstractContextManager[object]:
    """`with mx.engine.bulk(100):` see `Engine.bulk`. With a size of 0 or 1 there are no segments."""
    return get_engine().bulk(max(1, size))


def set_bulk_size(size: int) -> int:
    """Accepted for MXNet's sake: the segments of a program are bulk already. Returns the size set before."""
    global _bulk_size
    before, _bulk_size = _bulk_size, size
    return before


def _make(kind: str) -> Engine:
    if kind not in _KINDS:
        raise EngineError(f"an engine is one of {', '.join(map(repr, _KINDS))}, got {kind!r}.")
    return _KINDS[kind]()
