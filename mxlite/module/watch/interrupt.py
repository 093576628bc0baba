"""Ctrl-C that waits only for the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupt:
    """While it is open, a first Ctrl-C only sets `asked`; a second one, or one `at_once`, interrupts.

    An update that is cut off in the middle would leave weights that no run without the interrupt has. The
    owner checks `asked`; an interrupt that was not checked is raised at the end.
    """

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is not None and before is not signal.SIG_IGN:
                self._before = before
                signal.signal(signal.SIGINT, self._ask)
        return self

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Context in which everything may be cut off: a Ctrl-C raises KeyboardInterrupt immediately,
        and one that came before does so now.
        """
        self._at_once = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.signal(signal.SIGINT, self._before)
            raise KeyboardInterrupt
        self.asked = True
        if self._at_once:
            raise KeyboardInterrupt

    def __exit__(self, kind: object, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.asked and kind is None:
            raise KeyboardInterrupt
