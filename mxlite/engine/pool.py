"""Pool: the workers of one (device, kind), the operations ready for them, and the bell that wakes them."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from ..core.errors import EngineError
from .operation import Operation

KINDS = ("compute", "team", "copy", "io")


class ThreadPool:
    """`ready` is a heap of (rank, order, operation); it and `asleep` change under the engine's lock.

    `ring` is called from anywhere, also by a thread that is interrupted or by a finalizer in the middle of
    anything, so it uses no lock of ours: `SimpleQueue.put` happens wholly or not at all. `rung` says that a
    ring is on its way and another would be wasted. The promise behind it: *a worker that is woken clears
    `rung` first and looks at the inbox second*, so what was in the inbox when `rung` was seen true is seen.
    """

    __slots__ = ("asleep", "bell", "closed", "ready", "rung", "threads")

    def __init__(self) -> None:
        self.ready: list[tuple[int, int, Operation]] = []
        self.bell: SimpleQueue[None] = SimpleQueue()
        self.rung = False
        self.asleep = 0
        self.closed = False
        self.threads: list[threading.Thread] = []

    def ring(self) -> None:
        self.rung = True  # before the bell: the woken worker may clear it before `put` returns
        try:
            self.bell.put(None)
        except (
            BaseException
        ):  # an interrupt, before or after the ring: one too many does no harm, a lost one would
            self.bell.put(None)
            raise


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise EngineError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
