"""Periods in which Python's garbage collector does not run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from .forks import Together

_FROZEN_BY_PYTHON = 1000
"""Python 3.12 freezes 375 objects by itself when it starts; a program would freeze all that there are."""

_was_enabled = False  # before the first of the threads now inside came in


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
    """Inside this context the collector looks for no cycles, in any thread; reference counting goes on.

    The collector visits all objects each time their number has grown by a quarter. Passes over a deep network
    create millions of objects that all stay and form no cycle: the collector took 40 % of their time.
    """
    _together.enter()
    try:
        yield
    finally:
        _together.leave()


def grow_old() -> None:
    """Count all present objects as old: the collector then visits them only in a full collection.

    Meant for objects that stay, such as modules. Does nothing if a program has frozen objects, as they would
    thaw.
    """
    if gc.get_freeze_count() < _FROZEN_BY_PYTHON:
        gc.freeze()
        gc.unfreeze()
