"""A shorter thread switch interval while programs run.

A worker that comes back from a kernel must have the interpreter's lock to go on. If the main thread, or one
that reads data, is busy in Python, it gives the lock up only when asked, and it is asked after
`sys.getswitchinterval()`: 5 ms, a hundred times as long as many a kernel. So while segments of programs run,
the interval is shorter. Measured on two cores with 200 kernels of 80 us that are called one by one, a busy
main thread makes them 70 times slower at 5 ms, 8 times at 0.5 ms, 4 times at 0.2 ms; joined to one call for
each segment (see `Backend.join`) 3, 1.3 and 1.1 times. Two threads that both compute in Python lose a tenth
by it, as long as a segment runs.
"""

from __future__ import annotations

import sys
from types import TracebackType

from ..core.process.forks import Together

INTERVAL_S = 0.0002


class Switching:
    """A shorter switch interval (`with SWITCHING:`). Outside, the interval is what it was.

    An interval that the user sets meanwhile stays.
    """

    def __init__(self) -> None:
        self._together = Together(self._begin, self._end)
        self._before = 0.0  # the interval to go back to; 0.0 where it was short enough

    def __enter__(self) -> None:
        self._together.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._together.leave()

    def _begin(self) -> None:
        if (interval := sys.getswitchinterval()) > INTERVAL_S:
            self._before = interval
            sys.setswitchinterval(INTERVAL_S)

    def _end(self) -> None:
        if self._before:
            if abs(sys.getswitchinterval() - INTERVAL_S) < 1e-9:
                sys.setswitchinterval(self._before)
            self._before = 0.0


SWITCHING = Switching()
