"""The contract run at once: the oracle for `threaded.py`, and the engine to debug with.

The closure runs inside `push`, on the caller's thread, so a debugger shows who pushed it. Everything
else is as in the threaded engine: an exception does not come out of push but poisons, and an operation
pushed inside an operation runs after that one is over (its writes are not finished before). Threads that push
at the same time take turns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import count

from .engine import check_bulk_size, Engine, refuse_push, refuse_wait
from .failure import Journal, SourceLine, user_line
from .operation import check_vars, Operation
from .process import look_after
from .schedule import check_kind
from .var import Var


class NaiveEngine(Engine):
    """Runs each operation inside the call that pushes it: the oracle of ThreadedEngine."""

    outlives_its_thread = True

    def __init__(self) -> None:
        super().__init__()
        # Reentrant, since a finalizer may push in the middle of a push; it then finds `_current` or a queue.
        self._turn = threading.RLock()
        self._queue: deque[Operation] = deque()
        self._orders = count()
        self._running: Operation | None = None
        self._runner = 0
        self._finished = 0
        self._stopped = False
        if self.outlives_its_thread:
            look_after(self)

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
        check_kind(kind)
        inside = self._inside()
        if self._stopped and not inside:
            raise refuse_push()
        where = where or user_line()
        if where is None and inside and self._running is not None:
            where = self._running.where
        self._queue.append(
            Operation(
                fn,
                check_vars(reads),
                check_vars(writes),
                name,
                where,
                -priority,
                next(self._orders),
                None,
                None,
            )
        )
        if not inside:
            self._run_queue()

    def bulk(self, size: int) -> AbstractContextManager[object]:
        check_bulk_size(size)
        return nullcontext()

    def stop(self) -> None:
        self._drain()
        self._stopped = True
        error = self.journal.surface_all()
        if error is not None:
            raise error

    def stats(self) -> dict[str, int]:
        pending = len(self._queue)
        return {
            "pushed": self._finished + pending,
            "executed": self._finished - self.journal.skipped,
            "failed": self.journal.failed,
            "skipped": self.journal.skipped,
            "pending": pending,
        }

    def _inside(self) -> bool:
        return self._runner == threading.get_ident()

    def _run_queue(self) -> None:
        with self._turn:
            if self._runner:
                return  # a finalizer pushed while this thread was in here: the loop below will see it
            try:
                self._runner = threading.get_ident()
                while self._queue:
                    self._running = self._queue.popleft()
                    self._running.run(self.journal)
                    self._finished += 1
            finally:
                self._running = None
                self._runner = 0

    def _settle(self, vars: tuple[Var, ...], exclusive: bool) -> None:
        if self._inside():
            raise refuse_wait()
        self._run_queue()  # for what an interrupt may have left there, and for our turn

    def _drain(self) -> None:
        self._settle((), False)

    def before_fork(self) -> None:
        self._turn.acquire()

    def after_fork_in_parent(self) -> None:
        self._turn.release()

    def after_fork_in_child(self) -> None:
        self._turn.release()
        self.journal = Journal()  # the parent raises what the parent ran
