"""Consecutive calls of native functions as one call.

A call from Python costs about 0.7 us, and releases the interpreter's lock; when it returns
it has to wait for that lock, up to `sys.getswitchinterval()` (5 ms) if another thread computes in Python.
A loop over a table of functions and arguments, in machine code, makes the calls for less, without the lock.
It ends at the first result that is not 0 under its mask:

    table   | function | i0 ... i10 | x0 x1 | mask of its answer |     one row for each call

Arguments are integers and addresses, in their order, and float32 numbers, in theirs: on Linux, unlike
Windows, the two kinds are passed separately, so that a function finds them however they are mixed (System V
ABI for x86-64, 3.2.3; AAPCS64, 6.8.2). A function ignores surplus arguments.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .....core.machine_code import native
from ...onednn.library import Done, failure
from ...onednn.primitive import Calls
from .team import Run, usable

MOST_INTEGERS, MOST_FLOATS = 11, 2  # what dnnl_sgemm takes
MOST_IN_REGISTERS = 4  # of integers, everywhere
LEAST = 2  # calls that are worth a table
_ROW = 1 + MOST_INTEGERS + 1 + 1  # in words of 64 bits; two floats are one


def _text() -> str:
    """The loop: `i32 run(ptr table, i64 count)`, 0 or the number of the call whose answer was not 0."""
    integers, floats = range(MOST_INTEGERS), range(MOST_FLOATS)
    read = []
    for i in integers:
        read += [f"%p{i} = getelementptr i64, ptr %row, i64 {1 + i}", f"%i{i} = load i64, ptr %p{i}"]
    read.append(f"%pf = getelementptr i64, ptr %row, i64 {1 + MOST_INTEGERS}")
    for i in floats:
        read += [f"%q{i} = getelementptr float, ptr %pf, i64 {i}", f"%x{i} = load float, ptr %q{i}"]
    lines = "\n  ".join(read)
    args = ", ".join([*(f"i64 %i{i}" for i in integers), *(f"float %x{i}" for i in floats)])
    return f"""
define i32 @run(ptr %table, i64 %count) nounwind {{
entry:
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %next, %more ]
  %left = icmp slt i64 %n, %count
  br i1 %left, label %body, label %end
body:
  %row = getelementptr [{_ROW} x i64], ptr %table, i64 %n
  %f = load ptr, ptr %row
  {lines}
  %pm = getelementptr i64, ptr %row, i64 {_ROW - 1}
  %mask64 = load i64, ptr %pm
  %answer = call i32 %f({args})
  %mask = trunc i64 %mask64 to i32
  %status = and i32 %answer, %mask
  %next = add i64 %n, 1
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %more
more:
  br label %head
failed:
  %status64 = zext i32 %status to i64
  store i64 %status64, ptr %pm
  %at = trunc i64 %next to i32
  ret i32 %at
end:
  ret i32 0
}}
"""


def join(calls: Sequence[Run]) -> list[tuple[int, Run]]:
    """`calls` merged: pairs of the position of a call's first part in `calls`, and the call."""
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
    """Several calls as one. An error has `call`, the index of the one that failed."""

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
    if not isinstance(call, functools.partial) or call.keywords:
        return None
    function = call.func
    if not isinstance(function, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return None
    # The result is ignored, or it is a status of oneDNN's; other calls are left to Python.
    if function.restype is None:
        mask = _NONE
    elif isinstance(getattr(function.restype, "__self__", None), Done):
        mask = _STATUS
    else:
        return None
    floats = [a.value for a in call.args if isinstance(a, ctypes.c_float)]
    words = [_word(a) for a in call.args if not isinstance(a, ctypes.c_float)]
    if None in words or len(words) > MOST_INTEGERS or len(floats) > MOST_FLOATS:
        return None
    if (floats or len(words) > MOST_IN_REGISTERS) and not sys.platform.startswith("linux"):
        return None
    address = ctypes.cast(function, ctypes.c_void_p).value
    row = [address or 0, *(w or 0 for w in words), *[0] * (MOST_INTEGERS - len(words))]
    two = (ctypes.c_float * MOST_FLOATS)(*floats)
    return [[*row, ctypes.c_int64.from_buffer(two).value, mask]]


def _word(value: Any) -> int | None:
    """An argument as a 64-bit integer; None if it is none."""
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value)
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    if isinstance(value, ctypes.c_char):
        return value.value[0]
    if isinstance(value, ctypes.c_int | ctypes.c_uint | ctypes.c_int64 | ctypes.c_uint64):
        return int(value.value)
    return None


@functools.cache
def _runner() -> Any:
    code = native.load(_text())
    return code.function("run", ctypes.c_void_p, ctypes.c_int64, result=ctypes.c_int32)
