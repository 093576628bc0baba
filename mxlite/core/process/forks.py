"""Locks that a forked child can take, and scopes that threads share, whatever other threads did at the fork.

A child has the memory of its parent but only the thread that forked. A lock that another thread held is held
for ever there, by nobody. So every lock that outlives a call is made here:

    _lock = forks.lock()

At a fork each of them is taken first, so that the data it guards is whole in the child. A lock that is held
for longer than `PATIENCE_S` (a compiler at work, a file being written) is not waited for, since its holder
may be waiting for the forking thread: in the child such a lock is new, and its data is as that thread left
it. So a thread that holds a lock for long must leave nothing half done that others trust.

In the parent nothing changes. A thread that forks while it holds a reentrant lock of its own keeps it in
the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any

PATIENCE_S = 0.05
"""Seconds to wait for all locks together, at one fork."""

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held: dict[int, list[Any]] = {}  # locks taken by a thread that forks, by thread
_in_child: list[Callable[[], object]] = []


def lock() -> threading.Lock:
    """A `threading.Lock` that is free in a forked child."""
    fresh = threading.Lock()
    _locks.add(fresh)
    return fresh


def rlock() -> Any:
    """A `threading.RLock` that is free in a forked child, unless the thread that forked has it."""
    fresh = threading.RLock()
    _locks.add(fresh)
    return fresh


def in_child(run: Callable[[], object]) -> None:
    """Call `run()` in every forked child from now on, when its locks are free. It is kept for ever."""
    _in_child.append(run)


def _all() -> list[Any]:
    while True:
        try:
            return list(_locks)
        except RuntimeError:  # another thread has made one meanwhile
            continue


def _before() -> None:
    held = _held[get_ident()] = []
    ends = monotonic() + PATIENCE_S
    for each in _all():
        if each.acquire(timeout=max(0.0, ends - monotonic())):
            held.append(each)


def _after_in_parent() -> None:
    for each in _held.pop(get_ident(), ()):
        each.release()


def _after_in_child() -> None:
    held = _held.pop(get_ident(), [])
    _held.clear()
    for each in held:
        each.release()
    taken = {id(each) for each in held}
    for each in _all():
        if id(each) not in taken:
            each._at_fork_reinit()  # as the standard library renews its own
    for run in _in_child:
        run()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


class Together:
    """Calls `begin()` as the first thread enters and `end()` as the last leaves, both under `lock`.

    A thread may come in more than once. In a forked child only the thread that forked is still inside: where
    it is not, `end()` is called there.
    """

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin, self._end = begin, end
        self._inside: list[int] = []  # threads, one entry each time
        self.lock = lock()
        in_child(self._leave_alone)

    @property
    def anybody(self) -> bool:
        """True if a thread is inside."""
        return bool(self._inside)

    def enter(self) -> None:
        with self.lock:
            if not self._inside:
                self._begin()
            self._inside.append(get_ident())

    def leave(self) -> None:
        with self.lock:
            self._inside.remove(get_ident())
            if not self._inside:
                self._end()

    def _leave_alone(self) -> None:
        if self._inside:
            me = get_ident()
            self._inside = [each for each in self._inside if each == me]
            if not self._inside:
                self._end()
