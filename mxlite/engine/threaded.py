"""The contract on worker threads.

Division of work
-------------
A push is **one append** to the inbox, and everything that changes the schedule is done by workers, under
one lock. This division is the heart of the file:

    any thread      push, wait:  inbox.append(operation or ticket);  ring if the pool sleeps
    a worker        lock:  link the inbox  ->  finish what it ran  ->  take the next
                    no lock:  run the closure

* `append` happens wholly or not at all. A KeyboardInterrupt (which Python raises between any two steps of
  the main thread, and of no other) or a finalizer (which Python runs in the middle of anything, and which
  may push) finds no half-linked schedule, and no lock that its own thread holds: pushing threads have none.
* Pushing never waits for a lock, so main thread and workers do not hand the interpreter lock to and fro.
  Under the GIL that would cost more than all else here: each forced change of threads takes up to
  `sys.getswitchinterval()`, 5 ms.
* A worker takes the lock once per operation: to link what came in, to finish the last operation and to take
  the next, which for a chain is the very one it has just made ready.

**Linking** and **finishing** are the schedule's (`schedule.py`). An operation stays in `inbox` until it is
linked, so "inbox empty, then writer None" means "nothing pending on this Var": a wait for finished work is a
look at two fields.

**Tickets.** A thread that must wait appends a ticket, which is linked in its turn like an operation and
opens a gate when its count is zero. If all workers are busy with long closures nobody would link it, though
its Var may be ready by then; so a thread that got no answer within 0.5 ms sends for the *linker*, a worker
that never runs anything.

**Sleep.** A worker goes to sleep in this order: count itself asleep, look at the inbox again, wait for the
bell. A push appends first and looks at `asleep` second. Whichever comes first, one sees the other.

**Teams.** OpenMP keeps a team of threads for each thread that ran a parallel kernel. Where it is libgomp,
a team that waits for its next kernel spins, as long as all teams together have no more threads than there
are cores; with one more, all fall asleep at every barrier, hundreds of times in a step. Two workers that
take turns with the kernels of a program are two teams, and which of them wakes for the next segment is
chance. So such kernels are pushed as kind "team", which has one worker: the same thread runs them all.

Known weaknesses. A closure that releases the GIL needs it back when it returns; while the main thread
is busy in pure Python that takes up to the switch interval (bound programs make it shorter, see
`switching.py`; elsewhere `sys.setswitchinterval(0.0005)` helps). With N threads pushing at once the bound on
pending operations may be passed by N-1.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop
from itertools import count
from threading import get_ident

from ..core import config
from ..core.errors import EngineError
from .collecting import Bulk
from .engine import check_bulk_size, Engine, refuse_push, refuse_wait
from .failure import Failure, Journal, SourceLine, user_line
from .operation import check_vars, Operation
from .process import look_after
from .schedule import check_kind, Schedule, ThreadPool
from .ticket import Ticket
from .var import Var

_PATIENCE_S = 0.0005
_LINKER = ("", "linker")


class ThreadedEngine(Engine):
    """`workers`: threads for compute and for io of a CPU device. Copies, teams and other devices have one
    each; copies to and from a GPU have two.
    `max_pending`: operations that may be pending before push blocks. Both are taken from `config` if None."""

    def __init__(self, workers: int | None = None, max_pending: int | None = None) -> None:
        super().__init__()
        self._workers = config.cpu_workers() if workers is None else workers
        self._max_pending = config.max_pending() if max_pending is None else max_pending
        if self._workers < 1 or self._max_pending < 1:
            raise EngineError(
                f"an engine needs at least 1 worker and room for 1 operation, "
                f"got workers={self._workers}, max_pending={self._max_pending}."
            )
        self._orders = count()
        self._stopped = False
        self._be_empty()
        look_after(self)

    def _be_empty(self) -> None:
        """Set the state of an engine that nothing has been pushed to."""
        self._lock = threading.Lock()
        self._opening = threading.RLock()
        self.inbox: deque[Operation | Ticket] = deque()
        self._pools: dict[tuple[str, str], ThreadPool] = {}
        self._running: dict[int, Operation | None] = {}  # of each worker, by thread
        self.bulks: dict[int, Bulk] = {}  # by thread
        self._schedule = Schedule()  # changed only under the lock
        # Pushes that found no room append a gate; a worker opens all of them when half of the room is free.
        self._blocked: deque[threading.Lock] = deque()
        self._resume_at = self._max_pending // 2

    # -- any thread ------------------------------------------------------------------------------------

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
        pool = self._pools.get((device, kind))
        if pool is None:
            check_kind(kind)
            if self._stopped and get_ident() not in self._running:
                raise refuse_push()
            pool = self._open(device, kind)
        operation = Operation(
            fn,
            check_vars(reads),
            check_vars(writes),
            name,
            where or user_line(),
            -priority,
            next(self._orders),
            pool,
            None,
        )
        me = get_ident()
        if me in self._running:
            parent = self._running[me]
            if parent is not None:
                operation.generation = parent.generation
                if operation.where is None:
                    operation.where = parent.where
        elif self._stopped:
            raise refuse_push()
        if self.bulks:
            bulk = self.bulks.get(me)
            if bulk is not None:
                bulk.add(operation)
                return
        if len(self.inbox) + self._schedule.unfinished >= self._max_pending:
            self.make_room()
        self.inbox.append(operation)
        if pool.asleep and not pool.rung:
            pool.ring()

    def bulk(self, size: int) -> Bulk:
        return Bulk(self, min(check_bulk_size(size), self._max_pending))

    def ring_for(self, operation: Operation) -> None:
        """Wake a worker for an operation that `Bulk` has put into the inbox."""
        pool = operation.pool
        assert pool is not None
        if pool.asleep and not pool.rung:
            pool.ring()

    def make_room(self) -> None:
        """Block until fewer than `max_pending` operations are pending; a worker is never held up."""
        while (
            len(self.inbox) + self._schedule.unfinished >= self._max_pending
            and get_ident() not in self._running
        ):
            gate = threading.Lock()
            gate.acquire()
            self._blocked.append(gate)
            # Room may have come before the gate was in the list, or been taken by another thread, so look
            # again at once and now and then.
            if len(self.inbox) + self._schedule.unfinished >= self._max_pending:
                gate.acquire(timeout=0.05)

    def stop(self) -> None:
        self._refuse_inside()
        self._flush()
        self._stopped = True
        try:
            while self.inbox or self._schedule.unfinished:
                self._drain()
            self._close()
        except BaseException:  # an interrupt
            self._stopped = bool(self._pools) and all(pool.closed for pool in self._pools.values())
            raise
        error = self.journal.surface_all()
        if error is not None:
            raise error

    def stats(self) -> dict[str, int]:
        waiting = list(self.inbox)
        sizes = sum(item.size for item in waiting if isinstance(item, Operation))
        return {
            "pushed": self._schedule.linked_size + sizes,
            "executed": self._schedule.finished_size - self.journal.skipped,
            "failed": self.journal.failed,
            "skipped": self.journal.skipped,
            "pending": len(waiting) + self._schedule.unfinished,
        }

    def _settle(self, vars: tuple[Var, ...], exclusive: bool) -> None:
        self._refuse_inside()
        self._flush()
        if not self.inbox:
            for var in vars:
                if var.writer is not None or (exclusive and var.readers):
                    break
            else:
                return
        self._wait(Ticket(vars, exclusive))

    def _drain(self) -> None:
        self._refuse_inside()
        self._flush()
        if self.inbox or self._schedule.unfinished:
            self._wait(Ticket(None))

    def _wait(self, ticket: Ticket) -> None:
        self.inbox.append(ticket)
        pools = list(self._pools.values())
        for pool in pools:
            if pool.rung or pool.asleep < len(pool.threads):
                break  # somebody is awake and will come by
        else:
            if pools:
                pools[0].ring()
        if not ticket.sleep(_PATIENCE_S):
            if not ticket.linked:
                try:
                    linker = self._pools.get(_LINKER) or self._open(*_LINKER)
                except EngineError:
                    pass  # the interpreter ends and allows no new thread; a worker will link when it is free
                else:
                    linker.ring()
            ticket.sleep()

    def _refuse_inside(self) -> None:
        if get_ident() in self._running:
            raise refuse_wait()

    def _flush(self) -> None:
        if self.bulks:
            bulk = self.bulks.get(get_ident())
            if bulk is not None:
                bulk.flush()

    # -- workers ---------------------------------------------------------------------------------------

    def _open(self, device: str, kind: str) -> ThreadPool:
        with self._opening:
            pool = self._pools.get((device, kind))
            if pool is None:
                pool = ThreadPool()
                size = self._workers if device.startswith("cpu") and kind in ("compute", "io") else 1
                if device.startswith("gpu") and kind == "copy":
                    size = 2  # they wait for what they copy: one may go up while another comes down
                for index in range(size):
                    name = f"mxlite {device} {kind} {index}"
                    thread = threading.Thread(target=self._work, args=(pool,), name=name, daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:
                        if not pool.threads:
                            raise EngineError(
                                f"cannot start a worker for {kind!r} on {device!r}: {error}"
                            ) from error
                        break  # fewer will do
                    pool.threads.append(thread)
                self._pools[device, kind] = pool
            return pool

    def _close(self) -> None:
        with self._opening:
            pools = list(self._pools.values())
            for pool in pools:
                pool.closed = True
                for _ in pool.threads:
                    pool.ring()
            for pool in pools:
                for thread in pool.threads:
                    thread.join()

    def _work(self, pool: ThreadPool) -> None:
        me = get_ident()
        lock, inbox, running, journal = self._lock, self.inbox, self._running, self.journal
        schedule, blocked = self._schedule, self._blocked
        ready, bell = pool.ready, pool.bell
        running[me] = operation = None
        woken = False
        while True:
            with lock:
                if woken:
                    pool.asleep -= 1
                    woken = False
                while inbox:  # before finishing: what the operation pushed must be seen while it still counts
                    schedule.link(inbox[0], pool)
                    inbox.popleft()
                if operation is not None:
                    schedule.finish(operation, pool)
                    if blocked and len(inbox) + schedule.unfinished <= self._resume_at:
                        while blocked:
                            blocked.popleft().release()
                    running[me] = operation = None
                if ready:
                    operation = heappop(ready)[2]
                    running[me] = operation
                    if ready and pool.asleep and not pool.rung:
                        pool.ring()
                elif pool.closed:
                    break
                else:
                    pool.asleep += 1
                    woken = True
            if operation is not None:
                operation.run(journal)
                if inbox is not self.inbox:
                    return  # that was the operation that forked, and this is the child
            elif not inbox:
                bell.get()
                pool.rung = False
        del running[me]

    # -- fork ------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        if get_ident() not in self._running:
            self._drain()
        self._lock.acquire()  # so that the child does not find the schedule half changed

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        error = EngineError(
            "the process forked before this operation was over, so in the child its result is lost."
        )
        todo = [item for item in self.inbox if isinstance(item, Operation)]
        todo += [operation for operation in self._running.values() if operation is not None]
        for pool in self._pools.values():
            todo += [operation for _, _, operation in pool.ready]
        seen = set()
        while todo:
            operation = todo.pop()
            if operation not in seen:
                seen.add(operation)
                todo += [dependent for dependent in operation.dependents if isinstance(dependent, Operation)]
                for var in operation.reads + operation.writes:
                    var.writer = var.readers = None
                for var in operation.writes:
                    var.failure = Failure(operation.label(), operation.where, operation.order, error)
        lock, bulk = self._lock, self.bulks.get(get_ident())
        self._be_empty()
        self.journal = Journal()  # the parent raises what the parent ran
        if bulk is not None:
            self.bulks[get_ident()] = bulk
        lock.release()
