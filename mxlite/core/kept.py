"""Files that a process leaves for later ones: where they lie, whose they are, and how many there may be."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys

from . import config
from .files import replacing

DIGEST_BYTES = 32


def folder(name: str, make: bool = False) -> str | None:
    """The directory `name` in the user's cache; None where there is none that is the user's alone."""
    root = config.cache_dir()
    if root is None:
        return None
    directory = os.path.join(root, name)
    try:
        if make:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.stat(directory)
    except OSError:
        return None
    if sys.platform != "win32":
        # What lies here is believed: nobody else may have put it here.
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            return None
    return directory


def make_room(directory: str, most_bytes: int) -> None:
    """Delete the files used longest ago while all together have more than `most_bytes`. One look at each."""
    with os.scandir(directory) as entries:
        files = sorted((e.stat().st_mtime_ns, e.stat().st_size, e.path) for e in entries if e.is_file())
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
        os.utime(path)  # the least recently used goes first
    except OSError:
        return None
    blob = data[size:]
    return blob if blob and data[:size] == head(magic, key, blob) else None


def write(path: str, magic: bytes, key: str, blob: bytes) -> None:
    """Put `blob` there for `key`. Raises OSError."""
    with replacing(path) as file:
        file.write(head(magic, key, blob) + blob)


def head(magic: bytes, key: str, blob: bytes) -> bytes:
    """What stands before `blob` in its file. The key is in it: a file under another's name is foreign."""
    digest = hashlib.sha256(key.encode() + blob).digest()
    return magic + digest + len(blob).to_bytes(8, "little")


def head_bytes(magic: bytes) -> int:
    """The length of a head."""
    return len(magic) + DIGEST_BYTES + 8
