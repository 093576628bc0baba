"""Cache files that a process leaves for later ones: where they lie, who owns them, and how many there may be.

They save time and change nothing else. If a file cannot be written (a full disk, a folder that is read-only
or that others may write) the process goes on without, and warns once, naming the folder.

Machine code is among them, so a file is believed only if nobody but this user can have written it: its folder
and it itself are the user's, neither can be written by others, and neither is a symbolic link, a pipe or a
device. That is asked of the opened folder and of the opened file that is then read, by descriptor, and never
of a name, which may point elsewhere a moment later. Files are 0600 in a folder of 0700. The digest in a
file's head reveals a file that is cut, damaged or of another key; it is no proof of who wrote it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator

from .. import config
from .files import read_at_most

DIGEST_BYTES = 32
_POSIX = sys.platform != "win32"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_told: set[str] = set()  # folders for which a warning was given


def folder(name: str, make: bool = False) -> str | None:
    """The directory `name` in the user's cache; None if there is none that belongs to the user alone.

    `make`: create the directory if it is missing, because the caller wants to write there, and warn if that
    is not possible.
    """
    root = config.cache_dir()
    if root is None:
        return None
    directory = root
    try:
        if make:
            _make_root(root)
        fault = _root_fault(os.stat(root))
        if fault is None:
            directory = os.path.join(root, name)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory, 0o700)
            fault = _fault(os.lstat(directory), stat.S_ISDIR, "folder")
    except OSError as error:
        fault = error.strerror or str(error)
    if fault is None:
        return directory
    if make:
        _warn(root, directory, fault)
    return None


def fault() -> str | None:
    """Why nothing can be written to the user's cache, as far as can be seen without trying; None if it can.

    Raises no error where there is no cache.
    """
    above = config.cache_dir()
    while above and not os.path.lexists(above):
        above = os.path.dirname(above)
    if not above:
        return None
    try:
        status = os.stat(above)
    except OSError as error:
        return f"{above!r}: {error.strerror or error}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{above!r} is no folder"
    if above == config.cache_dir() and (seen := _root_fault(status)) is not None:
        return seen
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above!r} cannot be written"


def _make_root(root: str) -> None:
    """A folder of this user alone, whatever the umask; those above it are like any new folder."""
    if os.path.isdir(root):
        return
    os.makedirs(os.path.dirname(root), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(root, 0o700)


def _root_fault(found: os.stat_result) -> str | None:
    """Why nothing below this folder is believed: another user may put folders there.

    It may belong to the system, and others may add to it where they cannot take away, as in /tmp.
    """
    if not stat.S_ISDIR(found.st_mode):
        return "it is no folder"
    if _POSIX and found.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    if _POSIX and found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        return "other users may write there"
    return None


def _fault(found: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> str | None:
    """Why this file or folder is not believed: another user may have written its contents."""
    if not is_kind(found.st_mode):
        return "it is a symbolic link" if stat.S_ISLNK(found.st_mode) else f"it is no {kind}"
    if _POSIX and found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users may write there" if _POSIX and found.st_mode & _OTHERS_WRITE else None


@contextlib.contextmanager
def attempt(directory: str) -> Iterator[None]:
    """A context that turns a failed write to `directory` into a warning to the caller."""
    try:
        yield
    except OSError as error:
        _warn(config.cache_dir() or directory, directory, error.strerror or str(error))


def _warn(root: str, directory: str, fault: str) -> None:
    """Warn once for a cache, whatever is to be written there."""
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
    """Delete the least recently used files while all together exceed `most_bytes`; looks at each once."""
    files = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process makes room too
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
    files.sort()
    total = sum(nbytes for _, nbytes, _ in files)
    for _, nbytes, path in files:
        if total <= most_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= nbytes


def read(path: str, magic: bytes, key: str, most_bytes: int = 2**30) -> bytes | None:
    """The content that `write` stored at `path` for `key`; None if missing, damaged or not ours alone."""
    size = head_bytes(magic)
    data = content(path, size + most_bytes)
    if data is None:
        return None
    blob = data[size:]
    if not blob or data[:size] != head(magic, key, blob):
        return None
    with contextlib.suppress(OSError):  # a cache that can only be read is one too
        os.utime(path, follow_symlinks=not _POSIX)  # the least recently used goes first
    return blob


def content(path: str, most_bytes: int) -> bytes | None:
    """All bytes of a file of at most `most_bytes`; None if missing or possibly written by another user.

    The folder and the file are looked at after they were opened. No link is followed, no pipe waited for.
    """
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        if _POSIX:
            where = os.open(
                os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
            stack.callback(os.close, where)
            if _fault(os.fstat(where), stat.S_ISDIR, "folder") is not None:
                return None
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            file = os.fdopen(os.open(os.path.basename(path), flags, dir_fd=where), "rb")
        else:
            file = open(path, "rb")
        stack.enter_context(file)
        status = os.fstat(file.fileno())
        if _fault(status, stat.S_ISREG, "file") is None and status.st_size <= most_bytes:
            data = read_at_most(file, most_bytes + 1)
            return data if len(data) <= most_bytes else None
    return None


def write(path: str, magic: bytes, key: str, blob: bytes) -> None:
    """Put `blob` there for `key`. Raises OSError."""
    leave(path, head(magic, key, blob) + blob)


def leave(path: str, data: bytes) -> None:
    """Write a file atomically that others may neither read nor write. Raises OSError.

    It does not wait for the disk: after a power cut a damaged file has a wrong digest, or is no JSON.
    """
    where, name = os.path.split(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=where)  # 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def head(magic: bytes, key: str, blob: bytes) -> bytes:
    """The header of `blob`'s file. It holds the key, so a file under the name of another key is foreign."""
    digest = hashlib.sha256(key.encode() + blob).digest()
    return magic + digest + len(blob).to_bytes(8, "little")


def head_bytes(magic: bytes) -> int:
    """The length of a head."""
    return len(magic) + DIGEST_BYTES + 8
