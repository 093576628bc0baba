"""Consecutive calls of native functions as one call.

A call from Python costs about 0.7 us, and hands the interpreter's lock to other threads; when it comes back
it has to wait for that lock, up to `sys.getswitchinterval()` (5 ms) where another thread computes in Python.
A loop over a table of functions and arguments, in machine code, makes the calls for less, without the lock.
It ends at the first answer that is not 0 under its mask:

    table   | function | a0 | a1 | a2 | a3 | mask of its answer |  ...one row for each call
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from ....core import native
from ..onednn.library import Done, failure
from ..onednn.primitive import Calls
from .team import Run, usable

MOST_ARGS = 4
LEAST = 2  # calls that are worth a table
_ROW = MOST_ARGS + 2

_TEXT = """
define i32 @run(ptr %table, i64 %count) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %left = icmp slt i64 %i, %count
  br i1 %left, label %body, label %end
body:
  %row = getelementptr [6 x i64], ptr %table, i64 %i
  %f = load ptr, ptr %row
  %p0 = getelementptr i64, ptr %row, i64 1
  %p1 = getelementptr i64, ptr %row, i64 2
  %p2 = getelementptr i64, ptr %row, i64 3
  %p3 = getelementptr i64, ptr %row, i64 4
  %p4 = getelementptr i64, ptr %row, i64 5
  %a0 = load i64, ptr %p0
  %a1 = load i64, ptr %p1
  %a2 = load i64, ptr %p2
  %a3 = load i64, ptr %p3
  %mask64 = load i64, ptr %p4
  %answer = call i32 %f(i64 %a0, i64 %a1, i64 %a2, i64 %a3)
  %mask = trunc i64 %mask64 to i32
  %status = and i32 %answer, %mask
  %next = add i64 %i, 1
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %more
more:
  br label %head
failed:
  %status64 = zext i32 %status to i64
  store i64 %status64, ptr %p4
  %at = trunc i64 %next to i32
  ret i32 %at
end:
  ret i32 0
}
"""


def join(calls: Sequence[Run]) -> list[tuple[int, Run]]:
    """`calls` as fewer: pairs of the place of a call's first part in `calls`, and the call."""
    return list(_joined(calls)) if usable() else list(enumerate(calls))


def _joined(calls: Sequence[Run]) -> Iterator[tuple[int, Run]]:
    rows: list[tuple[int, list[int]]] = []
    first = 0
    for at, call in enumerate([*calls, None]):
        found = None if call is None else rows_of(call)
        if found is not None:
            if not rows:
                first = at
            rows += [(at, row) for row in found]
            continue
        if rows:
            if len(rows) >= LEAST:
                yield first, Joined(first, rows, calls[first:at])
            else:
                yield first, calls[first]
            rows = []
        if call is not None:
            yield at, call


class Joined:
    """Some calls as one. An error has `call`, the place of the one that failed counted from the first."""

    __slots__ = ("_count", "_keep", "_place", "_run", "_table")

    def __init__(self, first: int, rows: Sequence[tuple[int, list[int]]], keep: Any) -> None:
        self._run = _runner()
        self._table = (ctypes.c_int64 * (_ROW * len(rows)))(*(x for _, row in rows for x in row))
        self._count = ctypes.c_int64(len(rows))
        self._place = [at - first for at, _ in rows]
        self._keep = keep  # the arrays and primitives that the table has the addresses of

    def __call__(self) -> None:
        if at := self._run(self._table, self._count):
            slot = _ROW * at - 1
            status, self._table[slot] = self._table[slot], _STATUS
            error = failure(status)
            error.call = self._place[at - 1]  # type: ignore[attr-defined]
            raise error


_STATUS, _NONE = 0xFFFFFFFF, 0  # masks of a function's answer


def rows_of(call: Run) -> list[list[int]] | None:
    """The rows of a call of a ctypes function with integers and addresses, or of several; None for others."""
    if isinstance(call, Calls):
        found: list[list[int]] = []
        for part in call:
            if (rows := rows_of(part)) is None:
                return None
            found += rows
        return found
    if not isinstance(call, functools.partial) or call.keywords or len(call.args) > MOST_ARGS:
        return None
    function = call.func
    if not isinstance(function, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return None
    # What is done with the answer: nothing, or it is a status of oneDNN's; else it is not ours to make.
    if function.restype is None:
        mask = _NONE
    elif isinstance(getattr(function.restype, "__self__", None), Done):
        mask = _STATUS
    else:
        return None
    words = [_word(a) for a in call.args]
    if None in words:
        return None
    address = ctypes.cast(function, ctypes.c_void_p).value
    return [[address or 0, *(w or 0 for w in words), *[0] * (MOST_ARGS - len(words)), mask]]


def _word(value: Any) -> int | None:
    """An argument as a 64-bit integer; None where it is none."""
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value)
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    if isinstance(value, ctypes.c_int | ctypes.c_uint | ctypes.c_int64 | ctypes.c_uint64):
        return int(value.value)
    return None


@functools.cache
def _runner() -> Any:
    code = native.load(_TEXT)
    return code.function("run", ctypes.c_void_p, ctypes.c_int64, result=ctypes.c_int32)
