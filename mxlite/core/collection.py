"""Times in which Python's garbage collector does not run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from .together import Together

_was_enabled = False  # before the first came who is inside now


def _begin() -> None:
    global _was_enabled
    _was_enabled = gc.isenabled()
    gc.disable()


def _end() -> None:
    if _was_enabled:
        gc.enable()


_together = Together(_begin, _end)


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside, no cycle is looked for, whatever thread is in; what is not in a cycle is freed as ever.

    The collector goes over all objects each time there are a quarter more of them. Passes over a deep network
    make millions that all stay, and no cycle: 40 % of their time was its.
    """
    _together.enter()
    try:
        yield
    finally:
        _together.leave()


def grow_old() -> None:
    """Count all objects there are as old: they are looked at only when all are, not as soon as one is made.

    For what stays, such as modules. Does nothing where somebody has frozen objects, which would thaw.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
