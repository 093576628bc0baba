"""The dependency graph of pending operations: only workers touch it, one at a time, under the engine's lock.

**Link** gives an operation its predecessors: the writer and readers in the fields of its Vars (see `Var`)
put it on their `dependents`, `waits` counts them. **Finish** counts down. At zero an operation goes to its
pool's heap, and a ticket opens its gate. A ticket for everything (a drain) waits for the operations of its
generation and earlier ones, and for what they push.
"""

from __future__ import annotations

import threading
from heapq import heappush
from queue import SimpleQueue

from ..core.errors import EngineError
from .operation import Operation
from .ticket import Ticket

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


class Schedule:
    """Operations and tickets that are linked and not finished.

    `unfinished` counts the operations, `linked_size` and `finished_size` those that ever were, members of
    segments singly.
    """

    def __init__(self) -> None:
        self.unfinished = 0
        self.linked_size = 0
        self.finished_size = 0
        self._generation = 0
        self._drains: list[Ticket] = []

    def link(self, item: Operation | Ticket, mine: ThreadPool) -> None:
        """Let `item` wait for its predecessors. `mine`: the pool of the calling worker."""
        if isinstance(item, Ticket):
            self._link_ticket(item)
            return
        waits = 0
        for var in item.writes:
            writer = var.writer
            if writer is not None:
                writer.dependents.append(item)
                waits += 1
            readers = var.readers
            if readers:
                for reader in readers:
                    reader.dependents.append(item)
                waits += len(readers)
                var.readers = None
            var.writer = item
        for var in item.reads:
            writer = var.writer
            if writer is not None:
                if writer is item:
                    continue
                writer.dependents.append(item)
                waits += 1
            readers = var.readers
            if readers is None:
                var.readers = {item}
            else:
                readers.add(item)
        item.waits = waits
        self.unfinished += 1
        self.linked_size += item.size
        if item.generation is None:
            item.generation = self._generation
        else:
            for drain in self._drains:
                if item.generation <= drain.limit:
                    drain.waits += 1
        if not waits:
            self._make_ready(item, mine)

    def _link_ticket(self, ticket: Ticket) -> None:
        if ticket.vars is None:
            ticket.waits = self.unfinished
            ticket.limit = self._generation
            self._generation += 1
            if ticket.waits:
                self._drains.append(ticket)
        else:
            for var in ticket.vars:
                if var.writer is not None:
                    var.writer.dependents.append(ticket)
                    ticket.waits += 1
                if ticket.exclusive and var.readers:
                    for reader in var.readers:
                        reader.dependents.append(ticket)
                    ticket.waits += len(var.readers)
        ticket.linked = True
        if not ticket.waits:
            ticket.open()

    def finish(self, operation: Operation, mine: ThreadPool) -> None:
        """Release the operation's Vars and count down its dependents."""
        self.unfinished -= 1
        self.finished_size += operation.size
        for var in operation.writes:
            if var.writer is operation:
                var.writer = None
        for var in operation.reads:
            if var.readers:
                var.readers.discard(operation)
        operation.reads = operation.writes = ()
        for dependent in operation.dependents:
            dependent.waits -= 1
            if not dependent.waits:
                if isinstance(dependent, Ticket):
                    dependent.open()
                else:
                    self._make_ready(dependent, mine)
        operation.dependents = []
        if self._drains:
            self._count_down(operation)

    def _make_ready(self, operation: Operation, mine: ThreadPool) -> None:
        pool = operation.pool
        assert pool is not None
        heappush(pool.ready, (operation.rank, operation.order, operation))
        if pool is not mine and pool.asleep and not pool.rung:
            pool.ring()

    def _count_down(self, operation: Operation) -> None:
        generation = operation.generation
        assert generation is not None
        open = False
        for drain in self._drains:
            if generation <= drain.limit:
                drain.waits -= 1
                open = open or not drain.waits
        if open:
            for drain in self._drains:
                if not drain.waits:
                    drain.open()
            self._drains = [drain for drain in self._drains if drain.waits]
