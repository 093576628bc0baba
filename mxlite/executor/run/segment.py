"""Consecutive kernel calls of a program that the engine sees as one operation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter_ns
from typing import Any, NoReturn, Protocol

import numpy as np

from ...core import OperatorError, PlaceError
from ...engine import SWITCHING, Var, Vars
from .sheet import Sheet

Run = Callable[[], None]


class Record(Protocol):
    """Receiver of `Segment.timed`: ends of the steps from `first` on, `stamps[0]` being the start."""

    def __call__(self, sheet: Sheet, first: int, stamps: list[int]) -> None: ...


Join = Callable[[Sequence[Run]], Sequence[tuple[int, Run]]]


class Segment:
    """Kernel calls, one for each step from `first` on, run by calling the segment.

    `around` gives the context of the calls: their threads. `join` merges some of them; see `Backend`.
    `kind` is the engine's; `held` are all that it reads and all that it writes, as they are pushed. An error
    names the call that failed.
    """

    __slots__ = (
        "_joined", "_of", "around", "calls", "done", "first", "held", "join", "kind", "names",
        "reads", "sheet", "writes",
    )  # fmt: skip

    def __init__(
        self,
        done: Var,
        first: int,
        around: Callable[[], AbstractContextManager[None]],
        join: Join,
        sheet: Sheet,
        kind: str,
    ) -> None:
        self.kind = kind
        self.done = done
        self.first = first
        self.around = around
        self.join = join
        self.sheet = sheet
        self._joined: Sequence[tuple[int, Run]] = ()
        self._of: list[Run] = []  # the calls that were merged
        self.calls: list[Run] = []
        self.names: list[str] = []
        self.reads: tuple[Var, ...] = ()
        self.writes: tuple[Var, ...] = ()
        self.held = Vars(), Vars()

    def __call__(self) -> None:
        if self._of != self.calls:  # the first time, or after a call was changed
            self._of = list(self.calls)
            self._joined = self.join(self._of)
        rest = iter(self._joined)
        with SWITCHING, self.around(), np.errstate(all="ignore"):
            try:
                for _, call in rest:
                    call()
            except Exception as error:
                at, _ = self._joined[len(self._joined) - operator.length_hint(rest) - 1]
                fail(self.names[at + getattr(error, "call", 0)], error)

    def timed(self, record: Record) -> Run:
        """The same with a time stamp after each call; `record` is called at the end."""
        return partial(self._run_timed, record)

    def _run_timed(self, record: Record) -> None:
        clock = perf_counter_ns
        stamps: list[int] = []
        look = stamps.append
        with SWITCHING, self.around(), np.errstate(all="ignore"):
            look(clock())
            try:
                for call in self.calls:
                    call()
                    look(clock())
            except Exception as error:
                fail(self.names[len(stamps) - 1], error)
            finally:
                record(self.sheet, self.first, stamps)


def fail(name: str, error: Any) -> NoReturn:
    """Raise the `error` of a call as one that names it: PlaceError for an IndexError, else OperatorError."""
    if isinstance(error, OperatorError) and error.operation == name:
        raise error
    kind = PlaceError if isinstance(error, IndexError) else OperatorError
    raise kind(f"{name!r} failed with {type(error).__name__}: {error}", operation=name) from error
