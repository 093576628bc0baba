"""Arrays that still lie in a file: shape and dtype are known, their bytes are read in pieces.

So a checkpoint is read into the arrays of a bound program without a second copy:

    file  |--head--|----- fc1_weight -----|-- fc2_weight --| ...
                     |piece|  ->  fc1_weight of the program
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterator
from typing import Any, IO, NamedTuple

import numpy as np

from ...core import as_dtype, current_context
from ...core.disk.files import PIECE
from ...core.errors import file_error, FormatError
from ..ndarray import NDArray

_LITTLE = sys.byteorder == "little"


class _Raw(io.FileIO):
    """A file that is closed, without a warning, when the last reference is dropped."""

    def __del__(self) -> None:
        self.close()


class _File(io.BufferedReader):
    """A file that is closed with its last reference: a checkpoint stays open between `load` and `bind`."""

    def __del__(self) -> None:
        self.close()


class FileSource:
    """`nbytes` bytes of a file from `start` on, by default to its end. `what` names them in errors."""

    def __init__(self, file: IO[bytes], what: str, start: int = 0, nbytes: int | None = None) -> None:
        self.what = what
        self.nbytes = file.seek(0, os.SEEK_END) - start if nbytes is None else nbytes
        self.file = file
        self._start = start

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, what: str) -> FileSource:
        """A Source over memory."""
        return cls(io.BytesIO(data), what)

    @classmethod
    def opened(cls, path: str) -> FileSource:
        """A Source over the file `path`, which is open as long as it or an array of it exists."""
        try:
            return cls(_File(_Raw(path)), path)
        except OSError as error:
            raise file_error(error) from None

    def part(self, offset: int, nbytes: int, what: str) -> FileSource:
        """A Source over `nbytes` of these bytes from `offset` on."""
        return FileSource(self.file, what, self._start + offset, nbytes)

    def read(self, offset: int, nbytes: int) -> bytes:
        """`nbytes` from `offset` on, fewer at the end."""
        buffer = bytearray(min(nbytes, max(0, self.nbytes - offset)))
        self.into(offset, memoryview(buffer))
        return bytes(buffer)

    def into(self, offset: int, target: memoryview) -> None:
        """Fill `target`, of bytes. FormatError if the file has become shorter."""
        self.file.seek(self._start + offset)
        done = 0
        while done < len(target):
            got = self.file.readinto(target[done:])  # type: ignore[attr-defined]
            if not got:
                raise FormatError(f"{self.what} could not be read; it shrank while it was.")
            done += got

    def pieces(self, offset: int, nbytes: int, size: int = PIECE) -> Iterator[memoryview]:
        """`nbytes` from `offset` on, at most `size` at a time: use each before asking for the next."""
        buffer = memoryview(bytearray(min(size, nbytes)))
        for start in range(0, nbytes, size):
            piece = buffer[: min(size, nbytes - start)]
            self.into(offset + start, piece)
            yield piece


class Extent(NamedTuple):
    """`length` elements that lie in `source` one after another, the first at byte `offset`."""

    source: FileSource
    offset: int
    length: int


class StoredArray:
    """An array of `shape` and `dtype` whose elements lie in `source` from `offset` on, little-endian.

    It is read as an NDArray is: `asnumpy`, `copyto`. A subclass whose elements lie elsewhere says so in
    `extents`.
    """

    stype = "default"

    def __init__(self, source: FileSource, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.source = source
        self.shape = shape
        self.dtype = dtype
        self._offset = offset

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in the file, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def extents(self, start: int = 0, stop: int | None = None) -> Iterator[Extent]:
        """Where the elements [start, stop) lie, by default all of them, in C order."""
        stop = math.prod(self.shape) if stop is None else stop
        yield Extent(self.source, self._offset + start * self.dtype.itemsize, stop - start)

    def bytes(self, what: str) -> FileSource:
        """A Source over its bytes, which may contain another file format."""
        return self.source.part(self._offset, self.nbytes, what)

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """The array, read into memory."""
        array = np.zeros(self.shape, self.dtype)
        raw, at = array.reshape(-1).view(np.uint8), 0
        for source, offset, length in self.extents():
            nbytes = length * self.dtype.itemsize
            source.into(offset, raw[at : at + nbytes].data)
            at += nbytes
        if self.nbytes:
            sound(raw, self.dtype)
        return array

    def array(self) -> NDArray:
        """The array, read to the current context."""
        return self.copyto(NDArray.fresh(self.shape, as_dtype(self.dtype), current_context()))

    def copyto(self, target: NDArray) -> NDArray:
        """Write the elements into an NDArray of the same shape, converted; returns it.

        Waits, so that only one piece is in memory at a time.
        """
        if target.stype != "default":
            return self.array().copyto(target)
        size = self.dtype.itemsize
        flat, at = target.reshape((-1,)), 0
        for source, offset, length in self.extents():
            for piece in source.pieces(offset, length * size, PIECE - PIECE % size):
                values = sound(np.frombuffer(piece, np.uint8), self.dtype)
                flat[at : at + len(values)] = values
                at += len(values)
                flat.wait_to_read()
        return target


def sound(raw: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Bytes of a file, converted in place to this machine's byte order, as elements."""
    if not _LITTLE:
        raw[:] = raw.reshape(-1, dtype.itemsize)[:, ::-1].reshape(-1)
    if dtype.kind == "b":
        np.not_equal(raw, 0, out=raw.view(bool))  # a bool that is neither 0 nor 1 misleads numpy
    return raw.view(dtype)
