"""A tree of numbers, text and arrays as bytes: the content of a checkpoint besides parameters.

    offset  bytes
    0       8   b"MXLSTATE"
    8       4   version, 1
    12      4   CRC-32 of everything after this field
    16      8   length of the header
    24          header: JSON; an array in it is {"array": [dtype, shape]}, in the order of their bytes
                the arrays' elements, one after the other, C order, little-endian

All integers are little-endian and unsigned. Equal trees give equal bytes. Reading builds numbers, text,
lists, dicts and arrays and nothing else, so a file from anywhere may be read, unlike a pickle. The structure
of a tree is validated by its readers (`core/disk/schema.py`).
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, IO

import numpy as np

from ...core.dtype import as_dtype, FLAGS
from ...core.errors import ArgumentError, FormatError, StateError
from ...core.wanted import found, wanted
from ...ndarray import NDArray
from ...ndarray.files.pieces import pieces
from ...ndarray.files.stored import FileSource, StoredArray

_MAGIC = b"MXLSTATE"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ")
_ARRAY = "array"
_DTYPES = {str(d): d for d in (*FLAGS.values(), np.dtype("uint32"), np.dtype("uint64"))}
DEEPEST = 32  # lists and dicts in one another
LONGEST_HEADER = 32 * 2**20  # bytes: some 500,000 arrays


class Packed:
    """A tree as the bytes of a file, `nbytes` of them, produced a piece at a time.

    The tree is of dict (keys are text), list, tuple (read back as a list), None, bool, int, float, str and
    arrays, numpy's or NDArrays. A dict whose only key is "array" is indistinguishable from an array and is
    refused. The arrays must not change.
    """

    def __init__(self, tree: Any) -> None:
        header, self._arrays = _planned(tree)
        self._head = struct.pack("<Q", len(header)) + header
        self.nbytes = _HEAD.size + len(header) + sum(_nbytes(a) for a in self._arrays)
        self.checksum = 0
        for piece in self._body():
            self.checksum = zlib.crc32(piece, self.checksum)

    def pieces(self) -> Iterator[memoryview]:
        """The bytes, at most PIECE at a time except for the header. Waits for the arrays."""
        yield memoryview(_MAGIC + struct.pack("<II", _VERSION, self.checksum))
        yield from self._body()

    def _body(self) -> Iterator[memoryview]:
        yield memoryview(self._head)
        for array in self._arrays:
            yield from pieces(array)

    def write(self, file: IO[bytes]) -> None:
        """Write the bytes. StateError if the arrays have changed since this was made."""
        made = self.pieces()
        file.write(next(made))
        checksum = 0
        for piece in made:
            checksum = zlib.crc32(piece, checksum)
            file.write(piece)
        if checksum != self.checksum:
            raise StateError(
                "The arrays changed while they were written, by another thread that trains: what is in the "
                "file belongs to no moment. Write it between two steps."
            )


def pack_state(tree: Any) -> bytes:
    """The bytes of a tree; see Packed."""
    return b"".join(Packed(tree).pieces())


def _planned(tree: Any) -> tuple[bytes, list[Any]]:
    """The header of a tree, and its arrays in order."""
    arrays: list[Any] = []

    def plain(x: Any) -> Any:
        # The depth is that of the user's own nesting, a handful: not of any graph.
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, np.generic):
            return x.item()
        if isinstance(x, (list, tuple)):
            return [plain(v) for v in x]
        if isinstance(x, dict):
            if bad := [k for k in x if not isinstance(k, str)] or list(x) == [_ARRAY]:
                raise ArgumentError(f"A state's keys are text, and not 'array' alone; got {bad}.")
            return {k: plain(v) for k, v in x.items()}
        if isinstance(x, (np.ndarray, NDArray)):
            arrays.append(x)
            return {_ARRAY: [_dtype_name(np.dtype(x.dtype)), list(x.shape)]}
        raise ArgumentError(f"A state holds numbers, text, lists, dicts and arrays; got {type(x).__name__}.")

    return json.dumps(plain(tree), separators=(",", ":"), allow_nan=True).encode(), arrays


def _nbytes(array: Any) -> int:
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


def unpack_state(data: bytes, what: str = "The state") -> Any:
    """The tree that `pack_state` made into bytes, its arrays numpy's.

    FormatError says what is wrong with the bytes; `what` is its name for them.
    """
    wanted(what, data, "bytes", bytes, bytearray, memoryview)
    return whole(stored_state(FileSource.of(data, what)))


def whole(tree: Any) -> Any:
    """A tree with its stored arrays read."""
    if isinstance(tree, StoredArray):
        return tree.asnumpy()
    if isinstance(tree, list):
        return [whole(v) for v in tree]
    return {k: whole(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


def stored_checksum(source: FileSource) -> int:
    """The checksum that a file says it has."""
    return int.from_bytes(source.read(12, 4), "little")


def stored_state(source: FileSource) -> Any:
    """The tree of a file, after its checksum was verified, with its arrays left there: StoredArrays."""
    what, nbytes = source.what, source.nbytes
    head = source.read(0, _HEAD.size)
    if head[: len(_MAGIC)] != _MAGIC:
        raise FormatError(_not_ours(head, source.read(nbytes - 1, 1) if nbytes else b"", what))
    if nbytes < _HEAD.size:
        raise FormatError(f"{what} is cut off: {nbytes} bytes, its head alone has {_HEAD.size}.")
    _, version, checksum, length = _HEAD.unpack_from(head)
    if version != _VERSION:
        raise FormatError(f"{what} is of version {version}; this mxlite reads version {_VERSION}.")
    found_sum = 0
    for piece in source.pieces(16, nbytes - 16):
        found_sum = zlib.crc32(piece, found_sum)
    if found_sum != checksum:
        raise FormatError(f"{what} is cut off or corrupt: the checksum of its {nbytes} bytes is wrong.")
    offset = _HEAD.size + length
    if offset > nbytes or length > LONGEST_HEADER:
        raise FormatError(
            f"{what} is corrupt: a header of {length} bytes in {nbytes}, at most {LONGEST_HEADER}."
        )
    try:
        header = json.loads(source.read(_HEAD.size, length))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is corrupt: its header is not JSON ({error}).") from None

    arrays = _Arrays(source, offset)
    result = arrays.tree(header, 0)
    if arrays.offset != nbytes:
        raise FormatError(f"{what} is corrupt: {nbytes - arrays.offset} bytes follow its last array.")
    return result


class _Arrays:
    """Reader of a header's arrays, with the offset of the next one."""

    def __init__(self, source: FileSource, offset: int) -> None:
        self.source = source
        self.offset = offset

    def tree(self, x: Any, depth: int) -> Any:
        """A JSON value with its arrays."""
        if not isinstance(x, (list, dict)):
            return x
        what = self.source.what
        if depth == DEEPEST:
            raise FormatError(f"{what} is corrupt: its header has more than {DEEPEST} levels of brackets.")
        if isinstance(x, list):
            return [self.tree(v, depth + 1) for v in x]
        if list(x) != [_ARRAY]:
            return {k: self.tree(v, depth + 1) for k, v in x.items()}
        dtype, shape = described(x[_ARRAY], what)
        array = StoredArray(self.source, self.offset, shape, dtype)
        if self.offset + array.nbytes > self.source.nbytes:
            raise FormatError(
                f"{what} is corrupt: an array of {array.nbytes} bytes at byte {self.offset} of "
                f"{self.source.nbytes}."
            )
        self.offset += array.nbytes
        return array


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Name in the file: mxlite's types, and the unsigned words that random generators keep."""
    return dtype.name if dtype.name in ("uint32", "uint64") else str(as_dtype(dtype))


def described(x: Any, what: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """(dtype, shape) of an array that a header describes by the list [dtype, shape]; else FormatError."""
    try:
        name, shape = x
        dtype = _DTYPES[name]
        if isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape) and len(shape) <= 32:
            # If an axis has length 0 the others take no bytes, but still have to be valid axes.
            if dtype.itemsize * math.prod(n for n in shape if n) < 2**63:
                return dtype, tuple(shape)
    except (TypeError, ValueError, LookupError):
        pass
    raise FormatError(f"{what} is corrupt: {found(x)} does not describe an array.")


def _not_ours(head: bytes, last: bytes, what: str) -> str:
    if head[:1] == b"\x80" or (head[:1] in b"(}]c" and last == b"."):
        return (
            f"{what} is a Python pickle, as MXNet writes its .states files. Reading a pickle runs whatever "
            f"code is inside, so mxlite does not. Load the parameters and start with fresh optimizer states."
        )
    return f"{what} is not an mxlite state: it starts with {head[:8]!r}, not {_MAGIC!r}."
