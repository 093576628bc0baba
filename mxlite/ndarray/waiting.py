"""Waiting for everything."""

from __future__ import annotations

from ..engine import get_engine


def waitall() -> None:
    """Return when everything pushed so far is over. Raises the first failure that no wait has raised yet."""
    get_engine().wait_all()
