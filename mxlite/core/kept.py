"""Files that a process leaves for later ones: where they lie, whose they are, and how many there may be.

Nothing depends on them but time. Where a file cannot be left (a full disk, a folder that cannot be written or
that others may write) the process goes on without, and warns once, naming the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import warnings
from collections.abc import Iterator

from . import config
from .files import replacing

DIGEST_BYTES = 32

_told: set[str] = set()  # folders that were warned of


def folder(name: str, make: bool = False) -> str | None:
    """The directory `name` in the user's cache; None where there is none that is the user's alone.

    `make`: for something to be left there, so that it is made if it is missing, and who asks is warned where
    that cannot be.
    """
    root = config.cache_dir()
    if root is None:
        return None
    directory = os.path.join(root, name)
    try:
        if make:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.stat(directory)
    except OSError as error:
        if make:
            _warn(root, directory, error.strerror or str(error))
        return None
    if (fault := _fault(found)) is not None:
        if make:
            _warn(root, directory, fault)
        return None
    return directory


def fault() -> str | None:
    """Why nothing can be left in the user's cache, as far as can be seen without trying; None where it can.

    Raises no error where there is no cache.
    """
    above = config.cache_dir()
    while above and not os.path.lexists(above):
        above = os.path.dirname(above)
    if not above:
        return None
    try:
        found = os.stat(above)
    except OSError as error:
        return f"{above!r}: {error.strerror or error}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{above!r} is no folder"
    if above == config.cache_dir() and (seen := _fault(found)) is not None:
        return seen
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above!r} cannot be written"


def _fault(found: os.stat_result) -> str | None:
    """Why what lies in this directory is not believed: somebody else may have put it there."""
    if sys.platform == "win32":
        return None
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users may write there" if stat.S_IMODE(found.st_mode) & 0o022 else None


@contextlib.contextmanager
def attempt(directory: str) -> Iterator[None]:
    """What is left in `directory` inside is left if that is possible; else who asks is warned."""
    try:
        yield
    except OSError as error:
        _warn(config.cache_dir() or directory, directory, error.strerror or str(error))


def _warn(root: str, directory: str, fault: str) -> None:
    """Once for a cache, whatever is to be left there."""
    if root in _told:
        return
    _told.add(root)
    warnings.warn(
        f"Nothing can be kept in the cache folder {directory!r} ({fault}). All works without, but each "
        f"process compiles and plans anew, which takes longer. MXLITE_CACHE_DIR names another folder, or "
        f"says 'off'.",
        RuntimeWarning,
        stacklevel=2,
    )


def make_room(directory: str, most_bytes: int) -> None:
    """Delete the files used longest ago while all together have more than `most_bytes`. One look at each."""
    files = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process makes room too
                if entry.is_file():
                    found = entry.stat()
                    files.append((found.st_mtime_ns, found.st_size, entry.path))
    files.sort()
    total = sum(nbytes for _, nbytes, _ in files)
    for _, nbytes, path in files:
        if total <= most_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= nbytes


def read(path: str, magic: bytes, key: str, most_bytes: int = 2**30) -> bytes | None:
    """What `write` left at `path` for `key`; None where that is not there, or not whole."""
    size = head_bytes(magic)
    try:
        if os.path.getsize(path) > size + most_bytes:
            return None
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    blob = data[size:]
    if not blob or data[:size] != head(magic, key, blob):
        return None
    with contextlib.suppress(OSError):  # a cache that can only be read is one too
        os.utime(path)  # the least recently used goes first
    return blob


def write(path: str, magic: bytes, key: str, blob: bytes) -> None:
    """Put `blob` there for `key`. Raises OSError."""
    with replacing(path, lasting=False) as file:  # what is not whole is seen by its digest
        file.write(head(magic, key, blob) + blob)


def head(magic: bytes, key: str, blob: bytes) -> bytes:
    """What stands before `blob` in its file. The key is in it: a file under another's name is foreign."""
    digest = hashlib.sha256(key.encode() + blob).digest()
    return magic + digest + len(blob).to_bytes(8, "little")


def head_bytes(magic: bytes) -> int:
    """The length of a head."""
    return len(magic) + DIGEST_BYTES + 8
