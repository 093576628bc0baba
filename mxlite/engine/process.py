"""Engines at the end of the process and at a fork.

**End.** A script that pushes and falls off its end has asked for work, and gets it: at exit each engine
finishes what is pending and joins its workers, so that no thread is left for the dying interpreter to trip
over. A failure that nobody waited for is printed, since there is nobody left to raise it to, and the process
ends with status 120: Python's own for failures after the last line.

**Fork.** A forked child has the memory of its parent but only the thread that forked: no workers. So
each engine first comes to rest (which may take as long as its operations do), and the child starts with an
empty engine that opens new workers when it needs them. Operations that could not be waited for (other threads
go on pushing; or an operation itself forks) are half done in the child: their Vars are poisoned there, and
nobody reads half a value. In the parent everything goes on.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
import weakref
from threading import get_ident
from typing import Any

from ..core.errors import MXLiteError
from .engine import Engine

_live: weakref.WeakSet[Engine] = weakref.WeakSet()
_held: dict[int, list[Engine]] = {}  # engines that a forking thread has drained, by thread


def look_after(engine: Engine) -> None:
    _live.add(engine)


def _engines() -> list[Engine]:
    while True:
        try:
            return list(_live)
        except RuntimeError:  # another thread has made one meanwhile
            continue


def _at_exit() -> None:
    for engine in _engines():
        try:
            engine.stop()
        except MXLiteError:
            print("mxlite: operations failed, and nobody waited for them.", file=sys.stderr)
            traceback.print_exc()
            sys.stderr = _Unflushed(sys.stderr)


class _Unflushed:
    """A stand-in for stderr in an interpreter that ends; it fails when the interpreter flushes it at last.

    An exception in a handler at exit changes no status, and a handler that ends the process prevents those
    registered before it from running. But a standard stream that cannot be flushed makes the status 120:
    see `sys.exit` in Python's documentation. The error itself is not shown.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()
        if sys.is_finalizing():  # other handlers at exit have run
            raise OSError("operations failed, and nobody waited for them")


def _before_fork() -> None:
    held = _held[get_ident()] = []
    for engine in _engines():
        engine.before_fork()
        held.append(engine)  # one that is made from here on is not at rest, and is left alone afterwards


def _after_fork_in_parent() -> None:
    for engine in _held.pop(get_ident(), ()):
        engine.after_fork_in_parent()


def _after_fork_in_child() -> None:
    held = _held.pop(get_ident(), [])
    _held.clear()
    for engine in held:
        engine.after_fork_in_child()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
