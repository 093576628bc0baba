"""Check of addresses on the network: downloads take https alone."""

from __future__ import annotations

import urllib.parse

from ..core import MXLiteError


def require_https(url: str) -> None:
    """Raise MXLiteError for an address of another kind."""
    if urllib.parse.urlsplit(url).scheme != "https":
        raise MXLiteError(
            f"download takes https addresses, got {url!r}: anything else could be changed on its way."
        )
