"""Files that appear whole or not at all, and are read no further than a bound."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, IO

from .wanted import wanted_path

PIECE = 1 << 20  # bytes


def read_at_most(file: IO[bytes], most: int) -> bytes:
    """What is left of `file`, or its first `most` bytes. Takes what is there, where `read(most)` takes `most`
    first."""
    pieces: list[bytes] = []
    while most > 0 and (piece := file.read(min(PIECE, most))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", lasting: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; move it over `path` when the block ends without an error.

    What is there and no file (`/dev/stdout`, a pipe) is written to, never replaced; of a link its target is.

    A reader sees the old file or the new one, never a part: also when the process is killed, and, if it is to
    be `lasting`, which waits for the disk, when the machine stops.
    """
    path = wanted_path("The file to write", path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, mode, **_text(mode)) as file:
            yield file
        return
    target = os.path.realpath(path)
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=f".{os.path.basename(target)}.", suffix=".tmp", dir=os.path.dirname(target) or "."
        )
    except OSError as error:  # nobody has asked for the temporary file
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
    try:
        with os.fdopen(handle, mode, **_text(mode)) as file:
            yield file
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        # mkstemp makes private files; a saved model has the rights any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _text(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
