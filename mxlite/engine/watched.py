"""An engine that shows a watcher each operation before it is pushed: how a profiler sees what runs.

While nobody watches there is no such engine, so watching costs nothing then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from .engine import Engine
from .failure import SourceLine, user_line
from .var import Var


class Watcher(Protocol):
    """A function from an operation about to be pushed to the operation to push in its place."""

    def __call__(
        self, fn: Callable[[], object], name: str, device: str, kind: str
    ) -> Callable[[], object]: ...

    def inside(self, name: str) -> AbstractContextManager[Watcher | None]:
        """A context in which an operation runs the user's code: what watches that code's own pushes."""


class WatchedEngine(Engine):
    """`inner`, whose pushes go through `watcher`. All state is that of `inner`."""

    def __init__(self, inner: Engine, watcher: Watcher) -> None:
        super().__init__()
        self.inner = inner
        self.journal = inner.journal
        self.watcher = watcher

    def push(
        self,
        fn: Callable[[], object],
        reads: Iterable[Var] = (),
        writes: Iterable[Var] = (),
        *,
        name: str = "",
        priority: int = 0,
        device: str = "cpu",
        kind: str = "compute",
        where: SourceLine | None = None,
    ) -> None:
        self.inner.push(
            self.watcher(fn, name, device, kind),
            reads,
            writes,
            name=name or str(getattr(fn, "__qualname__", "")),
            priority=priority,
            device=device,
            kind=kind,
            where=where or user_line(),
        )

    def bulk(self, size: int) -> AbstractContextManager[object]:
        return self.inner.bulk(size)

    def stop(self) -> None:
        self.inner.stop()

    def stats(self) -> dict[str, int]:
        return self.inner.stats()

    def wait_for(self, *vars: Var) -> None:
        self.inner.wait_for(*vars)

    def wait_to_write(self, *vars: Var) -> None:
        self.inner.wait_to_write(*vars)

    def wait_all(self) -> None:
        self.inner.wait_all()

    def _settle(self, vars: tuple[Var, ...], exclusive: bool) -> None:
        self.inner._settle(vars, exclusive)

    def _drain(self) -> None:
        self.inner._drain()

    def before_fork(self) -> None:
        self.inner.before_fork()

    def after_fork_in_parent(self) -> None:
        self.inner.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        self.inner.after_fork_in_child()
