"""The line of the user's code that pushed an operation.

Asked at every push and answered almost never, so `user_line` only notes a code object and an offset in
its bytecode; `describe` looks up the line number when an error is made of it.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType

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
