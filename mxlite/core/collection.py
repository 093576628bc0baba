"""Times in which Python's garbage collector does not run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0  # how many are
_was_enabled = False  # before the first of them came


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside, no cycle is looked for, whatever thread is in; what is not in a cycle is freed as ever.

    The collector goes over all objects each time there are a quarter more of them. Passes over a deep network
    make millions that all stay, and no cycle: 40 % of their time was its.
    """
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_enabled:
                gc.enable()
