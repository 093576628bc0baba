"""Failure: why a Var is poisoned. Journal: the failures of one engine that nobody has seen yet."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections import deque
from types import CodeType

from ..core.errors import OperatorError, PlaceError

# The line of the user's code that pushed an operation. It is asked at every push and answered almost never,
# so `user_line` only notes a code object and an offset in its bytecode; `describe` looks up the line number
# when an error is made of it.

SourceLine = str | tuple[CodeType, int]

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
# The bottom of a worker's stack is `threading.py`, which is not the user's code either.
_NOT_THE_USERS = (_PACKAGE, threading.__file__)


def user_line() -> tuple[CodeType, int] | None:
    """The nearest frame outside mxlite below the caller of the caller; None if all of them are inside."""
    frame = sys._getframe(2)
    while True:
        code = frame.f_code
        if not code.co_filename.startswith(_NOT_THE_USERS):
            return code, frame.f_lasti
        below = frame.f_back
        if below is None:
            return None
        frame = below


def describe(where: SourceLine | None) -> str:
    """`where` as "file:line"."""
    if where is None:
        return "unknown line"
    if isinstance(where, str):
        return where
    code, offset = where
    for start, stop, line in code.co_lines():
        if start <= offset < stop and line is not None:
            return f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{code.co_firstlineno}"


class Failure:
    """One exception of one operation. Every Var it poisoned, at first or second hand, points here."""

    __slots__ = ("error", "operation", "order", "where")

    def __init__(self, operation: str, where: SourceLine | None, order: int, error: BaseException) -> None:
        self.operation = operation
        self.where = where
        self.order = order
        self.error = error

    def to_exception(self) -> OperatorError:
        """A new error at each call: a raised exception collects tracebacks, a shared one too many."""
        where = describe(self.where)
        kind = PlaceError if isinstance(self.error, IndexError) else OperatorError
        if isinstance(self.error, OperatorError) and not self.error.operation:  # a kernel's own words
            error = kind(
                f"{self.operation}: {self.error} (called at {where})", operation=self.operation, where=where
            )
            error.__cause__ = self.error
            return error
        if isinstance(self.error, OperatorError):  # an operation that is many calls names the one that failed
            inner = self.error
            error = kind(f"{inner} (called at {where})", operation=inner.operation, where=where)
            error.__cause__ = inner.__cause__ or inner
            return error
        what = traceback.format_exception_only(self.error)[-1].strip()
        error = kind(
            f"{self.operation}, called at {where}, failed with {what}", operation=self.operation, where=where
        )
        error.__cause__ = self.error
        return error


class Journal:
    """Remembers each failure until it surfaces, and counts what went wrong.

    Operations write from many threads and waits read from many, so both go through single calls of
    `deque`, each of which happens wholly or not at all. What is taken out is whose it is to raise.
    """

    def __init__(self) -> None:
        self._unseen: deque[Failure] = deque()
        self._lock = threading.Lock()
        self.failed = 0
        self.skipped = 0

    def note_failed(self, failure: Failure) -> None:
        self._unseen.append(failure)
        with self._lock:
            self.failed += 1

    def note_skipped(self) -> None:
        with self._lock:
            self.skipped += 1

    def surface(self, failure: Failure) -> OperatorError:
        """The exception for `failure`, which from now on counts as seen."""
        try:
            self._unseen.remove(failure)
        except ValueError:
            pass  # seen before
        return failure.to_exception()

    def surface_all(self) -> OperatorError | None:
        """One exception for all that nobody has seen: the first in push order, the others as its notes."""
        taken: list[Failure] = []
        try:
            while self._unseen:
                try:
                    taken.append(self._unseen.popleft())
                except IndexError:
                    break  # another thread took the last one
            if not taken:
                return None
            first, *others = sorted(taken, key=lambda failure: failure.order)
            error = first.to_exception()
            for other in others:
                error.add_note(f"Also: {other.to_exception()}")
            return error
        except BaseException:  # an interrupt: nobody has seen them after all
            self._unseen.extendleft(reversed(taken))
            raise
