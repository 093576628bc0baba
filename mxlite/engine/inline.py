"""InlineEngine: runs the pushes of a thread that is inside an operation of another engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..core.errors import EngineError
from .failure import SourceLine, user_line
from .naive import NaiveEngine
from .var import Var


class InlineEngine(NaiveEngine):
    """A NaiveEngine that looks out for the engine around it.

    A Var on which that one has work pending cannot be waited for from here, as the work may depend on the
    very operation that asks: it is an EngineError.
    """

    outlives_its_thread = False  # an end or a fork of the process finds its work done, or its thread gone

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
        reads, writes = tuple(reads), tuple(writes)
        _refuse_pending((*reads, *writes), name)
        if any(var.readers for var in writes):
            raise _pending(name)
        where = where or user_line()
        super().push(fn, reads, writes, name=name, priority=priority, device=device, kind=kind, where=where)

    def _settle(self, vars: tuple[Var, ...], exclusive: bool) -> None:
        _refuse_pending(vars, "a wait")
        super()._settle(vars, exclusive)


def _refuse_pending(vars: Iterable[Var], name: str) -> None:
    for var in vars:
        if var.writer is not None:
            raise _pending(name)


def _pending(name: str) -> EngineError:
    return EngineError(
        f"{name or 'an operation'}, called inside an operation, uses an array that is still being "
        f"computed outside. Make the array an input of the operator, or call its wait_to_read() before."
    )
