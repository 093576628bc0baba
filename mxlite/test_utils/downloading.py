"""Downloads: over https only, atomic, and of bounded size."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.parse
from typing import Any

from ..core import MXLiteError, replacing
from ..core.errors import RangeError
from ..core.log import Log
from .addresses import require_https

_log = Log(__name__)

_CHUNK = 1 << 20
_TIMEOUT_S = 30.0
_GIB = 1 << 30


def _open(url: str, timeout: float) -> Any:
    from .https import open_https  # which imports all that Python has for the network

    return open_https(url, timeout)


def download(
    url: str,
    fname: str | None = None,
    dirname: str | None = None,
    overwrite: bool = False,
    retries: int = 5,
    most_bytes: int = 4 * _GIB,
    timeout: float = _TIMEOUT_S,
) -> str:
    """Fetch `url` into a file and return its name: `fname` (the address's last part) in `dirname`.

    An existing file is kept, and nothing is fetched, unless `overwrite`. After a failure of the network
    it is tried again, `retries` times. MXLiteError for an address that is not https, and for more than
    `most_bytes`; then there is no file. `timeout`: seconds to wait for an answer.
    """
    if retries < 0:
        raise RangeError(f"retries is 0 or more, got {retries}.")
    name = fname or os.path.basename(urllib.parse.urlsplit(url).path)
    if not name:
        raise MXLiteError(f"{url!r} ends in no file's name; give fname.")
    target = os.path.join(dirname, name) if dirname is not None else name
    if os.path.exists(target) and not overwrite:
        _log.info("%s is there already", target)
        return target
    require_https(url)
    if folder := os.path.dirname(target):
        os.makedirs(folder, exist_ok=True)
    for left in reversed(range(retries + 1)):
        try:
            _fetch(url, target, most_bytes, timeout)
            break
        except (urllib.error.URLError, OSError, EOFError) as error:
            if not left or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                raise
            _log.warning("%s failed (%s); %d more attempts", url, error, left)
            time.sleep(min(1.0, timeout / 10))
    _log.info("%s is now %s", url, target)
    return target


def _fetch(url: str, target: str, most: int, timeout: float) -> None:
    with _open(url, timeout) as answer, replacing(target) as file:
        promised = answer.headers.get("Content-Length")
        size = int(promised) if promised and promised.isdecimal() else None
        if size is not None and size > most:
            raise MXLiteError(f"{url} has {size:,} bytes, more than most_bytes, {most:,}.")
        count = 0
        while chunk := answer.read(_CHUNK):
            count += len(chunk)
            if count > most:
                raise MXLiteError(f"{url} has more than most_bytes, {most:,} bytes.")
            file.write(chunk)
        if size is not None and count < size:
            raise EOFError(f"{url} ended after {count:,} of {size:,} bytes.")
