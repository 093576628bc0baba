"""A scope shared by threads: it begins when the first thread enters and ends when the last has left."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from . import forks


class Together:
    """Calls `begin()` as the first thread enters and `end()` as the last leaves, both under `lock`.

    A thread may come in more than once. In a forked child only the thread that forked is still inside: where
    it is not, `end()` is called there.
    """

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin, self._end = begin, end
        self._inside: list[int] = []  # threads, one entry each time
        self.lock = forks.lock()
        forks.in_child(self._leave_alone)

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
