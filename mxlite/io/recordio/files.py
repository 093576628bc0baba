"""Files of records: one after the other, or by key through an index beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO, TextIO

from ...core.disk.files import opened
from ...core.errors import ArgumentError, FormatError, nearest, RangeError, StateError, UnknownNameError
from ...core.wanted import wanted_path
from ..keys import whole_key
from .record import read_record, write_record

Path = str | os.PathLike[str]


class MXRecordIO:
    """A file of records: `flag` "w" creates it anew, "r" reads it from its beginning.

    A process that was forked must open its own: reading or writing there raises StateError, since both
    would move one position.
    """

    def __init__(self, uri: Path, flag: str) -> None:
        self.uri = wanted_path("MXRecordIO: uri", uri)
        self.flag = flag
        self.is_open = False
        self.pid: int | None = None
        self._file: BinaryIO | None = None
        self.open()

    @property
    def writable(self) -> bool:
        """True if the file was opened for writing."""
        return self.flag == "w"

    def open(self) -> None:
        """Open the file, from its beginning."""
        if self.flag not in ("r", "w"):
            raise RangeError(
                f"flag is 'r' to read or 'w' to write, got {self.flag!r}.{nearest(str(self.flag), 'rw')}"
            )
        self._file = opened(self.uri, "wb" if self.writable else "rb")
        self.is_open = True
        self.pid = os.getpid()

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        if self.is_open:
            self.is_open = False
            self.pid = None
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def reset(self) -> None:
        """Go back to the first record; a file that is written becomes empty."""
        self.close()
        self.open()

    def write(self, buf: bytes | bytearray | memoryview) -> None:
        """Append a record."""
        if isinstance(buf, str):
            raise ArgumentError("A record is bytes, got str; encode it first.")
        write_record(self._at_work(writing=True), buf)

    def read(self) -> bytes | None:
        """The next record; None at the end.

        FormatError names the byte at which a file is cut off or damaged; the position stays before it.
        """
        return read_record(self._at_work(writing=False), self.uri)

    def tell(self) -> int:
        """The byte at which the next record begins."""
        return self._opened().tell()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise StateError(f"{self.uri} is closed; open() or reset() opens it.")
        return self._file

    def _at_work(self, writing: bool) -> BinaryIO:
        file = self._opened()
        if writing != self.writable:
            raise StateError(
                f"{self.uri} was opened to be {'written' if self.writable else 'read'} "
                f"(flag {self.flag!r}), not to be {'written' if writing else 'read'}."
            )
        if self.pid != os.getpid():
            raise StateError(
                f"{self.uri} was opened by process {self.pid}; this one, {os.getpid()}, must open "
                f"its own: reset()."
            )
        return file

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.writable:
            raise StateError(f"{self.uri} is being written: a copy would make the file anew.")
        return {k: v for k, v in self.__dict__.items() if k not in ("_file", "fidx")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from a pickle: at the beginning, and open if it was."""
        self.__dict__.update(state, _file=None)
        was_open, self.is_open = self.is_open, False
        if was_open:
            self.open()


class MXIndexedRecordIO(MXRecordIO):
    """A file of records and, at `idx_path`, a line `key TAB offset` for each of them.

    `keys` has the keys in the order of the index, `idx` the offset of each. `key_type` reads a key from text.
    """

    def __init__(self, idx_path: Path, uri: Path, flag: str, key_type: Callable[[Any], Any] = int) -> None:
        self.idx_path = os.fspath(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        self.fidx: TextIO | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx = {}
        self.keys = []
        try:
            if self.writable:
                self.fidx = opened(self.idx_path, "w", encoding="utf-8", newline="\n")
            else:
                size = os.fstat(self._opened().fileno()).st_size
                for key, at in read_index(self.idx_path, size, self.key_type):
                    self.idx[key] = at
                    self.keys.append(key)
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        super().close()
        fidx, self.fidx = getattr(self, "fidx", None), None
        if fidx is not None:
            fidx.close()

    def seek(self, idx: Any) -> None:
        """Go to the record of the key `idx`."""
        if not self.writable and self.is_open and self.pid != os.getpid():
            self.reset()
        file = self._at_work(writing=False)
        if idx not in self.idx:
            raise UnknownNameError(f"{self.idx_path} has no record {idx!r}; it has {len(self.idx):,} keys.")
        file.seek(self.idx[idx])

    def read_idx(self, idx: Any) -> bytes | None:
        """The record of the key `idx`."""
        self.seek(idx)
        return self.read()

    def write_idx(self, idx: Any, buf: bytes | bytearray | memoryview) -> None:
        """Append a record under the key `idx`."""
        key = self.key_type(idx)
        at = self.tell()
        self.write(buf)
        assert self.fidx is not None
        self.fidx.write(f"{key}\t{at}\n")
        self.idx[key] = at
        self.keys.append(key)


_LONGEST_LINE = 4096


def read_index(path: Path, size: int, key_type: Callable[[Any], Any] = int) -> list[tuple[Any, int]]:
    """[(key, byte)] of an index, in its order. `size`: bytes of the file of records.

    FormatError names the line that is no key and byte, or whose byte is not in the file.
    """
    name = os.fspath(path)
    entries = []
    with opened(name, "r", encoding="utf-8", errors="replace") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            fields = line.strip().split("\t")
            try:
                if len(fields) < 2 or not fields[1].isdecimal():
                    raise ValueError
                key, at = key_type(fields[0]), int(fields[1])
                if type(key) is int:
                    key = whole_key(key)
            except ValueError:
                raise FormatError(
                    f"{name}, line {number}: should be a key, a tab and a byte, but is {line[:60]!r}."
                ) from None
            if at >= size:
                raise FormatError(
                    f"{name}, line {number}: record {key!r} is at byte {at:,}, but the file has "
                    f"{size:,} bytes."
                )
            entries.append((key, at))
    return entries
