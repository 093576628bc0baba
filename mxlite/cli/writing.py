"""Files that a command writes."""

from __future__ import annotations

import errno
import os

from ..core.disk.files import replacing
from ..core.errors import MXLiteError


def check_writable(*paths: str | None) -> None:
    """Refuse a path that no file can be written to, before any work is done for it. None: nothing is written.

    Raises MXLiteError, naming the file. A later refusal of the disk is an error of `write`.
    """
    for path in paths:
        if path is None:
            continue
        if not path:
            raise MXLiteError("The name of a file to write is empty.")
        folder = os.path.dirname(os.path.realpath(path))
        fault = None
        if os.path.isdir(path):
            fault = errno.EISDIR
        elif not os.path.isdir(folder):
            fault = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
        elif not os.access(path if os.path.exists(path) and not os.path.isfile(path) else folder, os.W_OK):
            fault = errno.EACCES
        if fault is not None:
            raise MXLiteError(f"{path} cannot be written: {os.strerror(fault)}.")


def write(path: str, content: bytes) -> None:
    """`content` as the file `path`, whole or not at all. Raises MXLiteError, naming the file."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise MXLiteError(f"{path} cannot be written: {error.strerror or error}.") from None
