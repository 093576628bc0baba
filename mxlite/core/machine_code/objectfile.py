"""A loader of object files, which needs no LLVM.

LLVM can load what it has compiled, but a process whose code all comes from the cache has no other use for
LLVM, whose library takes tens of MB of memory and a part of a second to open. So the files are read here,
if they are of the kind that LLVM writes for modules like ours: relocatable ELF for x86-64 in the large code
model, in which every reference is a full address. All others raise `Unsuitable`: LLVM loads those.

Source: System V ABI, chapter 4 (object files) and 5 (loading); its AMD64 supplement, 4.4 (relocation).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_FILE = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, the lowest byte first
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _NO_BITS, _PLAIN_RELOCATIONS = 2, 4, 8, 9
_UNWIND = 0x70000001
_WRITE, _ALLOC, _THREAD_LOCAL = 1, 2, 0x400
_UNDEFINED, _RESERVED = 0, 0xFF00
_ADDRESS = 1  # R_X86_64_64: the symbol's address and the addend, 8 bytes
_LOCAL = 0

_MOST_BYTES = 2**30  # of a section
_PROT_EXEC = 4


class Unsuitable(Exception):
    """The file, or this system, is not of the kind that is loaded here."""


class Image:
    """The sections of an object file in memory, which live as long as this object.

    `outside`: address of a function that the file does not define, None if it is unknown. Raises Unsuitable.
    """

    def __init__(self, blob: bytes, outside: Callable[[str], int | None]) -> None:
        if not suits():
            raise Unsuitable("no Linux on x86-64")
        try:
            sections = list(_sections(blob))
            fixed, size = _laid_out(sections)
            base = _mapped(size)
            weakref.finalize(self, _unmap, base, size).atexit = False  # threads may still be in it
            self._functions = _filled(blob, sections, base, outside)
        except (struct.error, LookupError, OverflowError, ValueError) as error:
            raise Unsuitable(f"a broken file: {error}") from None
        if fixed:
            _protect(base, fixed)

    def address(self, name: str) -> int:
        """Address of the function `name`, 0 if there is none."""
        return self._functions.get(name, 0)


class _Section(NamedTuple):
    """A section's header and its offset in the image (None: it is not loaded)."""

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    place: int | None


def _sections(blob: bytes) -> Iterator[_Section]:
    ident, kind, machine, *_, start, _, _, _, _, width, count, _ = _FILE.unpack_from(blob)
    if not ident.startswith(_IDENT) or (kind, machine) != (_RELOCATABLE, _X86_64) or width != _SECTION.size:
        raise Unsuitable("no relocatable ELF file for x86-64")
    for i in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(blob, start + i * width)
        if kind != _NO_BITS and offset + size > len(blob):
            raise Unsuitable(f"section {i} ends behind the file")
        if kind == _PLAIN_RELOCATIONS or (flags & _ALLOC and flags & _THREAD_LOCAL):
            raise Unsuitable(f"section {i} is of kind {kind}, flags {flags:#x}")
        if kind == _UNWIND:
            flags = 0  # no code of ours throws exceptions
        yield _Section(kind, flags, offset, size, link, info, max(align, 1), None)


def _laid_out(sections: list[_Section]) -> tuple[int, int]:
    """Assign an offset to each loaded section: read-only ones first, then, on pages of their own, the
    others. Returns the bytes of the first, and of all."""
    end = fixed = 0
    for written in (False, True):
        for i, s in enumerate(sections):
            if s.flags & _ALLOC and bool(s.flags & _WRITE) == written:
                if s.align > mmap.PAGESIZE or s.size > _MOST_BYTES:
                    raise Unsuitable(f"section {i} is of {s.size} bytes, aligned to {s.align}")
                place = -(-end // s.align) * s.align
                sections[i] = s._replace(place=place)
                end = place + s.size
        end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        fixed = fixed if written else end
    return fixed, end


def _filled(
    blob: bytes, sections: list[_Section], base: int, outside: Callable[[str], int | None]
) -> dict[str, int]:
    """Copy the sections to `base` and relocate their references to one another; returns functions by name."""
    memory = ctypes.c_char * max((s.place + s.size for s in sections if s.place is not None), default=0)
    view = memoryview(memory.from_address(base)).cast("B")
    for s in sections:
        if s.place is not None and s.kind != _NO_BITS:
            view[s.place : s.place + s.size] = blob[s.offset : s.offset + s.size]
    functions: dict[str, int] = {}
    tables: dict[int, list[int | str]] = {}
    for i, s in enumerate(sections):
        if s.kind == _SYMBOLS:
            tables[i] = list(_symbols(blob, s, sections, base, functions))
    for s in sections:
        place = sections[s.info].place if s.kind == _RELOCATIONS else None
        if place is None:
            continue
        within = sections[s.info].size
        for offset, info, addend in _RELOCATION.iter_unpack(blob[s.offset : s.offset + s.size]):
            if info & 0xFFFFFFFF != _ADDRESS or offset + 8 > within:
                raise Unsuitable(f"relocation of kind {info & 0xFFFFFFFF} at {offset}")
            target = tables[s.link][info >> 32]
            if isinstance(target, str):
                address = outside(target)
                if address is None:
                    raise Unsuitable(f"{target!r} is unknown")
                target = address
            struct.pack_into("<Q", view, place + offset, target + addend)
    return functions


def _symbols(
    blob: bytes, table: _Section, sections: list[_Section], base: int, functions: dict[str, int]
) -> Iterator[int | str]:
    """Each symbol's address, or its name if another file defines it; adds the names that others may call."""
    names = sections[table.link].offset
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(
        blob[table.offset : table.offset + table.size]
    ):
        word = blob[names + name : blob.index(b"\0", names + name)].decode()
        if section == _UNDEFINED:
            yield word
        elif section >= _RESERVED:
            yield ""  # a file's name, a constant: nothing of ours refers to those
        else:
            place = sections[section].place
            address = base + value + (place or 0)
            if info >> 4 != _LOCAL and place is not None:
                functions[word] = address
            yield address


@functools.cache
def suits() -> bool:
    """True if this system is one whose files are loaded here."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _mapped(size: int) -> int:
    """`size` zeroed bytes on pages of their own."""
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = _libc().mmap(None, max(size, 1), mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise Unsuitable(f"no memory for {size} bytes")
    return int(base)


def _unmap(base: int, size: int) -> None:
    _libc().munmap(base, max(size, 1))


def _protect(base: int, size: int) -> None:
    """Make these pages executable and read-only."""
    if _libc().mprotect(base, size, mmap.PROT_READ | _PROT_EXEC):
        raise Unsuitable(f"the system forbids code there (error {ctypes.get_errno()})")
