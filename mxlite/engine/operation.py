"""Operation: a closure with the Vars it reads and writes. Segment: several that run as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..core.errors import ArgumentError
from .failure import Failure, Journal, SourceLine
from .var import Var

if TYPE_CHECKING:
    from .schedule import ThreadPool
    from .ticket import Ticket


def _spent() -> None:
    raise AssertionError("an operation ran twice")


class Operation:
    """One push.

    `order` is its place among all pushes, `rank` its priority negated (the least runs first).
    `waits` counts the operations that must be over before it; its `dependents` wait for it. `generation`
    tells a `wait_all` whether the operation was pushed before it; see `Ticket`.
    """

    __slots__ = (
        "dependents", "fn", "generation", "name", "order", "pool",
        "rank", "reads", "waits", "where", "writes",
    )  # fmt: skip

    waits: int

    size = 1

    def __init__(
        self,
        fn: Callable[[], object],
        reads: tuple[Var, ...],
        writes: tuple[Var, ...],
        name: str,
        where: SourceLine | None,
        rank: int,
        order: int,
        pool: ThreadPool | None,
        generation: int | None,
    ) -> None:
        self.fn = fn
        self.reads = reads
        self.writes = writes
        self.name = name
        self.where = where
        self.rank = rank
        self.order = order
        self.pool = pool
        self.generation = generation
        self.dependents: list[Operation | Ticket] = []
        for var in writes:
            var.pushes += 1

    def run(self, journal: Journal) -> None:
        """Call the closure, unless a Var that it reads is poisoned; heal or poison what it writes.

        Nothing is locked here: the caller has made sure that no other operation uses these Vars.
        """
        failure = None
        for var in self.reads:
            if var.failure is not None:
                failure = var.failure
                journal.note_skipped()
                break
        else:
            try:
                self.fn()
            except BaseException as error:
                if error.__traceback__ is not None:  # cut this frame off: it would keep the operation alive
                    error.__traceback__ = error.__traceback__.tb_next
                failure = Failure(self.label(), self.where, self.order, error)
                journal.note_failed(failure)
        self.fn = _spent
        for var in self.writes:
            var.failure = failure
            var.version += 1

    def label(self) -> str:
        return self.name or str(getattr(self.fn, "__qualname__", "operation"))


class Segment(Operation):
    """Consecutive pushes of one thread that the engine sees as one: fewer steps, coarser order.

    It holds every Var of every member while it runs. The members keep their own lists, so a poisoned
    Var stops exactly the members that read it, and an exception names the member that raised it.
    """

    __slots__ = ("members",)

    def __init__(self, pool: ThreadPool, generation: int | None) -> None:
        super().__init__(_spent, (), (), "segment", None, 0, 0, pool, generation)
        self.members: list[Operation] = []

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.members)

    def close(self) -> None:
        """Take the union of the members' reads and writes, their highest priority and their first order."""
        members = self.members
        self.writes = tuple(dict.fromkeys(var for member in members for var in member.writes))
        self.reads = tuple(dict.fromkeys(var for member in members for var in member.reads))
        self.rank = min(member.rank for member in members)
        self.order = members[0].order

    def run(self, journal: Journal) -> None:
        for member in self.members:
            member.run(journal)


class Vars(tuple[Var, ...]):
    """Vars without duplicates, checked once, for reads or writes that are pushed repeatedly."""

    __slots__ = ()

    def __new__(cls, vars: Iterable[Var] = ()) -> Vars:
        return super().__new__(cls, _looked_at(tuple(vars)))


def check_vars(vars: Iterable[Var]) -> tuple[Var, ...]:
    """`vars` as a tuple without duplicates, or an ArgumentError while the caller is there to read it."""
    return vars if type(vars) is Vars else _looked_at(tuple(vars))


def _looked_at(found: tuple[Var, ...]) -> tuple[Var, ...]:
    for var in found:
        if not isinstance(var, Var):
            raise ArgumentError(
                f"an operation reads and writes engine Vars, got {type(var).__name__}: {var!r}."
            )
    return found if len(found) < 2 else tuple(dict.fromkeys(found))
