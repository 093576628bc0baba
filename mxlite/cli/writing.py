"""Files that a command writes."""

from __future__ import annotations

from ..core.errors import MXLiteError
from ..core.files import replacing


def write(path: str, content: bytes) -> None:
    """`content` as the file `path`, whole or not at all. Raises MXLiteError, naming the file."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise MXLiteError(f"{path} cannot be written: {error.strerror or error}.") from None
