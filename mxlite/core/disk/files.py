"""Files that are written atomically and durably, and reads of bounded length.

A new content goes into a temporary file beside its target, to the disk, and then over it; at last the folder,
which holds the names, goes to the disk as well:

    write .run.resume.<who>-<random>.tmp    fsync it    rename it to run.resume    fsync the folder

So a power cut leaves the old content or the new one: renamed before its bytes are on the disk, the file may
be there and hold zeros, and without the last step the old name may come back.

A process that is killed leaves its temporary file. While it lives it holds a lock on it, which the system
releases with the process. So the first write into a folder deletes temporary files that can be locked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, IO, Literal, overload, TextIO

from ..errors import file_error, FileAccessError, FolderError
from ..wanted import wanted_path

if sys.platform != "win32":
    import fcntl

PIECE = 1 << 20  # bytes
LONG_AGO_S = 86400.0  # what other machines have left in a shared folder
_TEMPORARY = re.compile(r"\.mxlite-([0-9a-f]{8})-[a-z0-9_]+\.tmp$")
_OF_DISKS = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO, errno.EROFS)
_swept: set[str] = set()  # folders that this process has looked through


@overload
def opened(path: str | os.PathLike[str], mode: Literal["rb", "wb"] = "rb") -> BinaryIO: ...
@overload
def opened(path: str | os.PathLike[str], mode: Literal["r", "w"], **text: Any) -> TextIO: ...
@overload
def opened(path: str | os.PathLike[str], mode: str, **text: Any) -> IO[Any]: ...
def opened(path: str | os.PathLike[str], mode: str = "rb", **text: Any) -> Any:
    """The file at `path`, open; `text` is as of `open`. Raises FileError, which names it."""
    try:
        return open(path, mode, **text)
    except OSError as error:
        raise file_error(error) from None


def read_at_most(file: IO[bytes], most: int) -> bytes:
    """The rest of `file`, at most `most` bytes. `read(most)` would allocate `most` bytes first."""
    pieces: list[bytes] = []
    while most > 0 and (piece := file.read(min(PIECE, most))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", lasting: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; move it over `path` when the block ends without an error.

    An existing path that is no file (`/dev/stdout`, a pipe) is written to, not replaced. A link is followed.

    A reader sees the old file or the new one, never a part: also when the process is killed, and, if it is to
    be `lasting`, which waits for the disk, when the machine stops. A FileError names `path`.
    """
    path = wanted_path("The file to write", path)
    if os.path.exists(path) and not os.path.isfile(path):
        with opened(path, mode, **_text(mode)) as file:
            yield file
        return
    target = os.path.realpath(path)
    folder = os.path.dirname(target) or "."
    try:
        handle, temporary, lock = _made(folder, os.path.basename(target))
    except OSError as error:  # the user has not asked for the temporary file
        raise file_error(error, os.fspath(path)) from None
    try:
        with os.fdopen(handle, mode, **_text(mode)) as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        # mkstemp makes private files; a saved model has the rights any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and (error.errno in _OF_DISKS or error.filename == temporary):
            raise file_error(error, os.fspath(path)) from None
        raise
    finally:
        if lock is not None:
            os.close(lock)
    if lasting:
        _sync_folder(folder)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise FileError, naming `path`, if it can be seen beforehand that no file can be written there.

    Makes a temporary file beside it and deletes it again.
    """
    path = wanted_path("The file to write", path)
    if os.path.isdir(path):
        raise FolderError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):
        if not os.access(path, os.W_OK):
            raise FileAccessError(errno.EACCES, os.strerror(errno.EACCES), path)
        return
    target = os.path.realpath(path)
    try:
        handle, temporary, lock = _made(os.path.dirname(target) or ".", os.path.basename(target))
    except OSError as error:
        raise file_error(error, path) from None
    for each in (handle, lock):
        if each is not None:
            os.close(each)
    os.unlink(temporary)


def room(path: str | os.PathLike[str]) -> int | None:
    """Bytes that this user may still write on the disk of `path`; None if that cannot be known."""
    try:
        stats = os.statvfs(os.path.dirname(os.path.realpath(path)) or ".")
    except (OSError, AttributeError):
        return None
    return stats.f_bavail * stats.f_frsize


def _made(folder: str, name: str) -> tuple[int, str, int | None]:
    """A temporary file for `name`: its handle, its path, and a handle that holds its lock. Raises OSError."""
    _sweep(folder)
    while True:
        handle, path = tempfile.mkstemp(
            prefix=f".{name[:180]}.mxlite-{_machine()}-", suffix=".tmp", dir=folder
        )
        if sys.platform == "win32":
            return handle, path, None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process sweeps just now
            os.close(handle)
            continue
        except OSError:
            return handle, path, None  # a file system without locks, where nothing is swept
        if os.fstat(handle).st_nlink:
            return handle, path, os.dup(handle)
        os.close(handle)  # swept before it was locked


def _sweep(folder: str) -> None:
    """Delete temporary files of processes that were killed, once in the life of this one."""
    if sys.platform == "win32" or folder in _swept:
        return
    _swept.add(folder)
    leftovers: list[tuple[str, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        leftovers = [(e.path, m[1]) for e in entries if (m := _TEMPORARY.search(e.name)) and e.name[0] == "."]
    for path, machine in leftovers:
        with contextlib.suppress(OSError):
            if machine != _machine() and time.time() - os.lstat(path).st_mtime < LONG_AGO_S:
                continue  # not all network file systems show others' locks
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process lives
                os.unlink(path)
            finally:
                os.close(handle)


def _machine() -> str:
    import hashlib  # it loads OpenSSL, and only those who write need it

    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _sync_folder(folder: str) -> None:
    """Bring the names in `folder` to the disk, where folders can be opened and synced."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def _text(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
