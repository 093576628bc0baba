"""Waiting for everything."""

from __future__ import annotations

from ...backends.gpu import opened
from ...engine import get_engine


def waitall() -> None:
    """Wait until all work pushed so far is over, on all devices. Raises the first failure that no wait has
    raised yet.
    """
    get_engine().wait_all()
    for backend in opened():
        backend.settle_all()
