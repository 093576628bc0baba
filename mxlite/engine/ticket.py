"""Ticket: a waiting thread's request to the engine, and the gate at which the thread sleeps."""

from __future__ import annotations

import sys
import threading

from .var import Var

# On POSIX a signal interrupts a thread that waits for a lock; on Windows it does not, so look up at times.
_LOOK_UP_S = 0.1 if sys.platform == "win32" else -1.0


class Ticket:
    """Opens when the operations that it counts are over.

    Either `vars` says what to wait for (their writers, and if `exclusive` their readers too), or it is None
    and the ticket waits for everything that was pushed before it. "Before" includes what those
    operations push themselves while they run: it inherits their `generation`, and everything with
    `generation <= limit` counts. Later pushes of other threads do not, so a busy neighbour cannot hold a
    `wait_all` for ever.

    Nothing ever waits for a ticket, so one whose thread was interrupted is simply forgotten.
    """

    __slots__ = ("_gate", "exclusive", "limit", "linked", "vars", "waits")

    def __init__(self, vars: tuple[Var, ...] | None, exclusive: bool = False) -> None:
        self.vars = vars
        self.exclusive = exclusive
        self.linked = False
        self.waits = 0
        self.limit = 0
        self._gate = threading.Lock()
        self._gate.acquire()

    def open(self) -> None:
        self._gate.release()

    def sleep(self, timeout_s: float | None = None) -> bool:
        """Sleep until the gate opens; False if `timeout_s` passed first."""
        if timeout_s is not None:
            return self._gate.acquire(timeout=timeout_s)
        while not self._gate.acquire(timeout=_LOOK_UP_S):
            pass
        return True
