"""One record of a RecordIO file, read and written. All numbers are little-endian.

    u32 0xCED7230A | u32 flag << 29 | length | length bytes | 0 to 3 zero bytes          one part
    flag: 0 a whole record, 1 the first part of one, 2 a middle part, 3 the last part

The magic number occurs nowhere else at a multiple of 4 bytes: if a payload has it there, the payload is
split, the four bytes are left out, and a reader puts them back between the parts. So a reader that starts in
the middle of a file finds the next record by searching for the number.

A file is untrusted: a length in it is compared with the bytes that are left before anything is allocated.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, IO, NoReturn

from ...core.errors import FormatError

MAGIC = 0xCED7230A
_MAGIC_BYTES = struct.pack("<I", MAGIC)
_HEAD = struct.Struct("<II")
LENGTH_LIMIT = 1 << 29
"""The upper limit of a part's length."""
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_CHUNK = 1 << 20


def write_record(file: IO[bytes], payload: bytes | bytearray | memoryview) -> int:
    """Write one record at the file's position; returns the bytes that it takes there."""
    raw = bytes(payload)
    parts = _parts(raw)
    for part in parts:
        if len(part) >= LENGTH_LIMIT:
            raise FormatError(
                f"A part of a record has less than {LENGTH_LIMIT:,} bytes, this one {len(part):,}."
            )
    written = 0
    for i, part in enumerate(parts):
        if len(parts) == 1:
            flag = _WHOLE
        else:
            flag = _FIRST if i == 0 else _LAST if i == len(parts) - 1 else _MIDDLE
        block = _HEAD.pack(MAGIC, flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        file.write(block)
        written += len(block)
    return written


def _parts(raw: bytes) -> list[bytes]:
    """The payload split at the magic number at multiples of 4, without those four bytes."""
    parts, begin, at = [], 0, raw.find(_MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            parts.append(raw[begin:at])
            begin = at + 4
            at = raw.find(_MAGIC_BYTES, begin)
        else:
            at = raw.find(_MAGIC_BYTES, at + 1)
    return [*parts, raw[begin:]]


def read_record(file: BinaryIO, name: str) -> bytes | None:
    """The record at the file's position, which moves past it; None at the end of the file.

    FormatError, naming the byte, if it is cut off or damaged; the position is then where it was.
    """
    start = file.tell()
    size = os.fstat(file.fileno()).st_size
    parts: list[bytes] = []
    flag = _FIRST
    while flag not in (_WHOLE, _LAST):
        at = start if not parts else file.tell()
        head = file.read(_HEAD.size)
        if not head and not parts:
            return None
        if len(head) < _HEAD.size:
            _refuse(file, start, f"{name} is cut off at byte {size:,}: the record at byte {start:,} goes on.")
        flag, length = _decode(head, at, not parts, name, file, start)
        padded = length + -length % 4
        left = size - at - _HEAD.size
        if padded > left:
            _refuse(
                file,
                start,
                f"{name}: the record at byte {start:,} wants {padded:,} bytes from byte {at + _HEAD.size:,} "
                f"on, but the file has only {max(left, 0):,} more.",
            )
        part = file.read(padded)
        if len(part) < padded:
            _refuse(file, start, f"{name} was cut while it was read, in the record at byte {start:,}.")
        parts.append(part[:length] if padded > length else part)
    return parts[0] if len(parts) == 1 else _MAGIC_BYTES.join(parts)


def _decode(head: bytes, at: int, first: bool, name: str, file: BinaryIO, start: int) -> tuple[int, int]:
    """(flag, length) of the head of a part at byte `at`."""
    magic, word = _HEAD.unpack(head)
    if magic != MAGIC:
        _refuse(
            file,
            start,
            f"{name} has no record at byte {at:,}: 0x{magic:08X} stands there, not 0x{MAGIC:08X}.",
        )
    flag, length = word >> 29, word & (LENGTH_LIMIT - 1)
    if flag not in ((_WHOLE, _FIRST) if first else (_MIDDLE, _LAST)):
        kind = "begin a record" if first else f"continue the record at byte {start:,}"
        _refuse(file, start, f"{name}: the part at byte {at:,} has the flag {flag}, which does not {kind}.")
    return flag, length


def _refuse(file: BinaryIO, start: int, message: str) -> NoReturn:
    file.seek(start)
    raise FormatError(message)


def record_offsets(file: BinaryIO, name: str, begin: int = 0, end: int | None = None) -> Iterator[int]:
    """Offsets of the records in [begin, end); only headers are read. `begin` is the start of a record."""
    size = os.fstat(file.fileno()).st_size
    end = size if end is None else end
    at = begin
    while at < end:
        start = at
        flag = _FIRST
        while flag not in (_WHOLE, _LAST):
            file.seek(at)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise FormatError(
                    f"{name} is cut off at byte {size:,}: the record at byte {start:,} goes on."
                )
            flag, length = _decode(head, at, at == start, name, file, start)
            at += _HEAD.size + length + -length % 4
            if at > size:
                raise FormatError(
                    f"{name}: the record at byte {start:,} ends at byte {at:,}, but the file at {size:,}."
                )
        yield start


def next_record(file: BinaryIO, at: int) -> int:
    """The first byte from `at` on where a record begins; the file's size if none does.

    As MXNet finds the parts of a file: the magic number at a multiple of 4 with a flag that begins a record.
    """
    size = os.fstat(file.fileno()).st_size
    at += -at % 4
    while at < size:
        file.seek(at)
        block = file.read(_CHUNK + 4)
        start = block.find(_MAGIC_BYTES)
        while start >= 0 and start + _HEAD.size <= len(block):
            flag = block[start + 7] >> 5
            if start % 4 == 0 and flag in (_WHOLE, _FIRST):
                return at + start
            start = block.find(_MAGIC_BYTES, start + 1)
        if len(block) < _CHUNK + 4:
            return size
        at += _CHUNK
    return size
