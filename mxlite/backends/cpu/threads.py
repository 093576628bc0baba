"""Threads inside one kernel of oneDNN or of generated code: OpenMP's, their number fixed when it is made."""

from __future__ import annotations

from ...core import config
from ...core.errors import MXLiteError

_threads: int | None = None


def num_threads() -> int:
    """Threads that a kernel made from now on uses."""
    return config.num_threads() if _threads is None else _threads


def set_num_threads(threads: int) -> int:
    """Use `threads` threads in each kernel of programs bound from now on; returns the number before.

    Programs that are bound already keep theirs. Raises MXLiteError for a number below 1 or above 1024.
    """
    global _threads
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise MXLiteError(f"set_num_threads wants a whole number from 1 to 1024, got {threads!r}.")
    before, _threads = num_threads(), threads
    return before
