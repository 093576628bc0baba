"""Machine code from LLVM IR text: compiled once, kept on disk, loaded in about a millisecond.

`load(text)` is all that others need: it returns the functions of a module of LLVM's assembly language,
compiled for the CPU this process runs on. Compiling takes LLVM tens of milliseconds, so the object file is
stored in the user's cache (see `config.cache_dir`), named by a digest of everything that determines it: the
text, the CPU and its features, the versions of LLVM and of this file. A file is used only if the digest at
its head is that of its bytes; everything else is compiled anew, and a directory that cannot be written, or
that is not the user's own, is no cache at all (see kept.py).

The CPU is this machine's, or the level of x86-64 that MXLITE_TARGET names (see level.py).

llvmlite is missing on platforms for which it has no wheel. Nothing here may be called where `available()`
is false.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from .. import config
from ..disk import kept
from ..errors import MXLiteError
from ..process import forks
from . import level, llvm, processor
from .llvm import Engine, Target
from .objectfile import Image, Unsuitable

VERSION = 1  # of the compilation: a higher number makes the files of older versions invalid
MOST_BYTES = 256 * 2**20  # on disk; the oldest files go
MOST_LOADED = 2048  # modules kept though nobody may be using them
_MAGIC = b"mxlite object 1\n"


class Code:
    """Machine code in memory, there for as long as this object is."""

    def __init__(self, blob: bytes) -> None:
        self._engine: Image | Engine
        try:
            self._engine = Image(blob, _outside)
        except Unsuitable:
            self._engine = Engine(blob, target(), _symbols)

    def address(self, name: str) -> int:
        """Address of the function `name`. It is valid only as long as this object lives: see `function`."""
        start = self._engine.address(name)
        if not start:
            raise KeyError(f"The module has no function {name!r}.")
        return start

    def function(self, name: str, *args: Any, result: Any = None) -> Any:
        """The function `name` as a ctypes function, which keeps the code alive.

        `args` and `result` are ctypes types. It releases the interpreter's lock while it runs.
        """
        called: Any = ctypes.CFUNCTYPE(result, *args)(self.address(name))
        called.code = self
        return called


@functools.cache
def available() -> bool:
    """True if there is a compiler: llvmlite, and a target that it knows. Raises MXLiteError as `target`."""
    try:
        return bool(target().triple)
    except MXLiteError:
        raise
    except (ImportError, OSError, RuntimeError):
        return False


@functools.cache
def target() -> Target:
    """The target that code is compiled for: this processor, or the part of it that MXLITE_TARGET allows.

    Raises MXLiteError if the processor has less.
    """
    at = processor.found()
    if (name := config.target()) == "native":
        return at
    return at._replace(cpu=name, features=level.checked(name, at.triple, at.features).features, text="")


def load(text: str, passes: int = 0) -> Code:
    """The module `text`, from memory, from disk, or compiled now.

    `passes`: 0 translates the instructions as they are written, which is enough for loops that are written
    with vectors; 1 to 3 let LLVM's passes of that level rearrange them first, at several times the cost.
    Raises RuntimeError with LLVM's words where the text is wrong.
    """
    return load_made(text, lambda: text, passes)


def load_made(question: str, text: Callable[[], str], passes: int = 0) -> Code:
    """As `load` of `text()`, which is the same for equal questions and is only called on a cache miss."""
    key = _key(question, passes)
    for keys in _noting:
        keys.append(key)
    with _lock:
        if (found := _loaded.get(key)) is not None:
            _loaded.move_to_end(key)
            return found
        blob = read(key)
        if blob is None:
            blob = compile(text(), passes)
            write(key, blob)
        code = Code(blob)
        _loaded[key] = code
        while len(_loaded) > MOST_LOADED:
            _loaded.popitem(last=False)
        return code


def compile(text: str, passes: int = 0) -> bytes:
    """The object file of a module, for this CPU. Looks at no cache; takes 10 to 200 ms."""
    return llvm.compile(text, target(), passes)


def add_symbol(name: str, address: int) -> None:
    """Bind the function `name` to `address` in modules that declare it and are loaded from now on."""
    _symbols[name] = address


def read(key: str) -> bytes | None:
    """The cached bytes for `key`, if the file on disk is whole."""
    path = _path(key)
    return None if path is None else kept.read(path, _MAGIC, key)


def write(key: str, blob: bytes) -> None:
    """Store `blob` on disk, if that is possible."""
    path = _path(key, make=True)
    if path is None:
        return
    with kept.attempt(os.path.dirname(path)):
        kept.write(path, _MAGIC, key, blob)
        _make_room(os.path.dirname(path), len(blob))


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """A context whose list receives the digest of each module that is loaded meanwhile."""
    keys: list[str] = []
    _noting.append(keys)
    try:
        yield keys
    finally:
        _noting[:] = [each for each in _noting if each is not keys]


_lock = forks.rlock()
_noting: list[list[str]] = []
_symbols: dict[str, int] = {}
_loaded: OrderedDict[str, Code] = OrderedDict()
_unseen = MOST_BYTES  # bytes written since the cache was last counted; the first write counts it


def _make_room(directory: str, added: int) -> None:
    """Delete the least recently used files while there are more than MOST_BYTES of them.

    Counting is a look at every file, so it is done once for every sixteenth of that.
    """
    global _unseen
    _unseen += added
    if _unseen < MOST_BYTES // 16:
        return
    _unseen = 0
    kept.make_room(directory, MOST_BYTES)


def _key(text: str, passes: int) -> str:
    at = target()
    parts = (str(VERSION), str(passes), at.triple, at.cpu, at.text, at.llvm, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _path(key: str, make: bool = False) -> str | None:
    """The file for `key`; None if there is no directory for it that belongs to the user alone."""
    directory = kept.folder("native", make)
    return None if directory is None else os.path.join(directory, f"{key}.o")


def _outside(name: str) -> int | None:
    """Address of the function `name` that a module declares: one of ours, or one of the process."""
    address = _symbols.get(name)
    if address is None:
        with contextlib.suppress(AttributeError):
            address = ctypes.cast(ctypes.CDLL(None)[name], ctypes.c_void_p).value
    return address


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """A context in which loaded code is not reused (for tests): everything comes from disk or is compiled."""
    with _lock:
        kept = OrderedDict(_loaded)
        _loaded.clear()
        try:
            yield
        finally:
            _loaded.update(kept)
