"""Requests over https, also after redirections."""

from __future__ import annotations

import urllib.request
from typing import Any

from .addresses import require_https


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirection to anything but https."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_https(url: str, timeout: float) -> Any:
    """The response of `url`, open for reading; waits `timeout` seconds for an answer."""
    return urllib.request.build_opener(HttpsOnly).open(url, timeout=timeout)
