"""Cache of compiled kernels on disk: compiled once for a GPU's architecture, read in a millisecond.

A file is named by a digest of all that went into it: the text, the options, the architecture, the versions of
NVRTC and of this file. It is used only if the digest at its start matches its bytes and its directory
is the user's own (see core/disk/kept.py); anything else is recompiled and overwritten.
"""

from __future__ import annotations

import hashlib
import os

from ....core.disk import kept
from . import nvrtc
from .source import KernelSource

VERSION = 1  # a higher number invalidates what older ones left
MOST_BYTES = 512 * 2**20  # on disk; the least recently used files are removed
MOST_FILE_BYTES = 64 * 2**20
_MAGIC = b"mxlite cubin 1\n"
_ELF = b"\x7fELF"


def compiled(source: KernelSource, architecture: str) -> bytes:
    """The cubin of `source`, from disk or from NVRTC. Raises CompilationError."""
    key = _key(source, architecture)
    path = _path(key)
    found = None if path is None else kept.read(path, _MAGIC, key, MOST_FILE_BYTES)
    if found is not None and found.startswith(_ELF):
        return found
    cubin, _ = nvrtc.compile(source, architecture)
    _keep(key, cubin)
    return cubin


def _keep(key: str, cubin: bytes) -> None:
    path = _path(key, make=True)
    if path is None or len(cubin) > MOST_FILE_BYTES:
        return
    with kept.attempt(os.path.dirname(path)):
        kept.write(path, _MAGIC, key, cubin)
        kept.make_room(os.path.dirname(path), MOST_BYTES)


def _key(source: KernelSource, architecture: str) -> str:
    parts = (str(VERSION), architecture, repr(nvrtc.version()), repr(source.options), source.text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _path(key: str, make: bool = False) -> str | None:
    directory = kept.folder("cuda", make)
    return None if directory is None else os.path.join(directory, f"{key}.cubin")
