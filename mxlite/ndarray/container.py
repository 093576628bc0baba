"""MXNet's NDArray container (`.params`, `.nd`): named arrays in one file, little-endian, without padding.

    u64 0x112 | u64 0 | u64 n | n arrays | u64 m | m names (u64 length, UTF-8)         m is 0 or n

One array is written in one of four versions, told apart by the first u32:

| version | first u32  | then                                                                   |
|---------|------------|------------------------------------------------------------------------|
| V0      | ndim       | u32 dims; context; dtype; data                                         |
| V1      | 0xF993FAC8 | shape; context; dtype; data                                            |
| V2      | 0xF993FAC9 | i32 stype; [stored shape]; shape; context; dtype; [aux]; data; [aux data] |
| V3      | 0xF993FACA | as V2, dense only; 0 axes mean a scalar and an axis may have length 0   |

with shape = i32 ndim, i64 dims; context = i32 device type, i32 number; dtype = i32 flag; parts in brackets
only in sparse arrays. All four are read. V2 is written, byte for byte as MXNet 1.9.1 does, and V3 where V2
cannot say it (no axes, or an axis of length 0).

A file is untrusted: each size in it is compared with the bytes that are left before anything is allocated.

**Sparse arrays are read into dense ones**: rows or elements that are not stored are 0, and where an index
comes twice the last one counts in a row_sparse array and the sum in a csr one. A few bytes can name a dense
array of any size, so it may take at most 64 MiB or 256 times the bytes of the file, whichever is more.

An array without axes in V0 to V2 (MXNet's mark of one that holds nothing) is read as float32 of shape (0,).
"""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, BinaryIO, IO

import numpy as np

from ..core.dtype import flag_of, FLAGS, float32
from ..core.errors import FormatError

Array = np.ndarray[Any, np.dtype[Any]]
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]

MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_MAX_AXES = 32
_DEVICE_TYPES = (1, 2, 3, 5)  # cpu, gpu, pinned, shared: all are read into the CPU's memory
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2
_DENSE_FORM_NBYTES = 64 * 2**20
_DENSE_FORM_RATIO = 256
_LITTLE = sys.byteorder == "little"


def write_container(file: IO[Any], arrays: Sequence[Array], names: Sequence[str] = ()) -> None:
    """Write `arrays`, and their `names` if there are any, at the file's position."""
    if names and len(names) != len(arrays):
        raise FormatError(f"{len(arrays)} arrays need as many names or none, got {len(names)}.")
    file.write(struct.pack("<QQQ", MAGIC, 0, len(arrays)))
    for array in arrays:
        array = np.asarray(array, order="C")
        shape = array.shape
        magic = _V2 if shape and 0 not in shape else _V3
        file.write(
            struct.pack(
                f"<Iii{len(shape)}qiii",
                *(magic, _DENSE, len(shape), *shape),
                *(1, 0, flag_of(array.dtype)),  # of cpu(0)
            )
        )
        raw = _raw(array)
        file.write(raw.data if _LITTLE else raw.reshape(-1, array.itemsize)[:, ::-1].tobytes())
    file.write(struct.pack("<Q", len(names)))
    for name in names:
        text = name.encode()
        file.write(struct.pack("<Q", len(text)) + text)


def read_container(
    file: BinaryIO | bytes | bytearray | memoryview, what: str = "", allocate: Allocate = np.empty
) -> tuple[list[Array], list[str]]:
    """Arrays and names (none, or one for each array) of a seekable file from its position on, or of a buffer.

    `what` names the source in errors. `allocate(shape, dtype)` gives the memory for each array. Bytes after
    the last name are ignored, as MXNet does. Raises FormatError for everything that is not a container.
    """
    if isinstance(file, (bytes, bytearray, memoryview)):
        file = io.BytesIO(file)
    return _Reader(file, what or getattr(file, "name", "") or "the buffer", allocate).container()


class _Reader:
    """A file, and how many of its bytes are left."""

    def __init__(self, file: BinaryIO, what: str, allocate: Allocate) -> None:
        start = file.tell()
        self.nbytes = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        self.file = file
        self.what = what
        self.allocate = allocate
        self.left = self.nbytes

    def error(self, problem: str) -> FormatError:
        return FormatError(
            f"{self.what} is not a readable NDArray file: at byte {self.nbytes - self.left}, {problem}"
        )

    def claim(self, nbytes: int, part: str) -> None:
        """Raise unless `nbytes` are left."""
        if nbytes > self.left:
            raise self.error(f"{part} needs {nbytes} bytes, but {self.left} are left; the file is cut short.")

    def numbers(self, form: str, part: str) -> tuple[int, ...]:
        nbytes = struct.calcsize("<" + form)
        self.claim(nbytes, part)
        data = self.file.read(nbytes)
        if len(data) != nbytes:
            raise self.error(f"{part} could not be read; the file shrank while it was read.")
        self.left -= nbytes
        return struct.unpack("<" + form, data)

    def container(self) -> tuple[list[Array], list[str]]:
        magic, _, count = self.numbers("QQQ", "the header")
        if magic != MAGIC:
            raise FormatError(
                f"{self.what} is not an NDArray file: it starts with {magic:#x}, wanted {MAGIC:#x}."
            )
        self.claim(4 * count, f"a list of {count} arrays")
        arrays = []
        for index in range(count):
            arrays.append(self.array(f"array {index}"))
        (named,) = self.numbers("Q", "the number of names")
        if named not in (0, count):
            raise self.error(f"there are {named} names for {count} arrays; wanted 0 or {count}.")
        names = []
        for index in range(named):
            (nbytes,) = self.numbers("Q", f"the length of name {index}")
            self.claim(nbytes, f"name {index}")
            text = self.file.read(nbytes)
            try:
                names.append(text.decode())
            except UnicodeDecodeError:
                raise self.error(f"name {index} is not UTF-8: {text[:40]!r}.") from None
            self.left -= nbytes
        return arrays, names

    def array(self, part: str) -> Array:
        (magic,) = self.numbers("I", part)
        if magic in (_V2, _V3):
            (stype,) = self.numbers("i", part)
            if stype in (_ROW_SPARSE, _CSR) and magic == _V2:
                return self.sparse(stype, part)
            if stype != _DENSE:
                raise self.error(
                    f"{part} has storage type {stype}; known are 0 (dense), 1 (row_sparse), 2 (csr)."
                )
            shape = self.shape(part)
            if shape is None or (not shape and magic == _V2):
                return self.allocate((0,), float32)
        elif magic == _V1:
            shape = self.shape(part)
            if not shape:
                return self.allocate((0,), float32)
        else:
            if magic > _MAX_AXES:
                raise self.error(f"{part} starts with {magic:#x}, which is no version and no number of axes.")
            shape = self.numbers(f"{magic}I", f"the shape of {part}")
            if not shape:
                return self.allocate((0,), float32)
        self.context(part)
        return self.data(shape, self.dtype(part), part)

    def shape(self, part: str) -> tuple[int, ...] | None:
        """A shape with i64 dims; None if even the number of axes is unknown (-1)."""
        (ndim,) = self.numbers("i", f"the shape of {part}")
        if ndim == -1:
            return None
        if not 0 <= ndim <= _MAX_AXES:
            raise self.error(f"{part} has {ndim} axes; wanted 0 to {_MAX_AXES}.")
        dims = self.numbers(f"{ndim}q", f"the shape of {part}")
        if any(d < 0 for d in dims):
            raise self.error(f"{part} has the shape {dims}; an axis cannot be negative.")
        return dims

    def context(self, part: str) -> None:
        device, number = self.numbers("ii", f"the device of {part}")
        if device not in _DEVICE_TYPES or number < 0:
            raise self.error(
                f"{part} lived on device number {number} of type {device}, which MXNet never writes."
            )

    def dtype(self, part: str) -> np.dtype[Any]:
        (flag,) = self.numbers("i", f"the dtype of {part}")
        if flag not in FLAGS:
            raise self.error(f"{part} has dtype number {flag}; known are {sorted(FLAGS)}.")
        return FLAGS[flag]

    def data(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], part: str, allocate: Allocate | None = None
    ) -> Array:
        nbytes = prod(shape) * dtype.itemsize
        self.claim(nbytes, f"{part} of shape {shape} and dtype {dtype}")
        array = self.new(shape, dtype, part, allocate or self.allocate)
        if nbytes:
            raw = _raw(array)
            if self.file.readinto(raw.data) != nbytes:  # type: ignore[attr-defined]
                raise self.error(f"{part} could not be read; the file shrank while it was read.")
            if not _LITTLE:
                raw[:] = raw.reshape(-1, dtype.itemsize)[:, ::-1].reshape(-1)
            if dtype.kind == "b":
                np.not_equal(raw, 0, out=raw.view(bool))  # a bool that is neither 0 nor 1 misleads numpy
        self.left -= nbytes
        return array

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], part: str, allocate: Allocate) -> Array:
        try:
            return allocate(shape, dtype)
        except (ValueError, OverflowError) as error:  # an axis beyond any address, next to one of length 0
            raise self.error(f"{part} has the impossible shape {shape}: {error}") from None

    def sparse(self, stype: int, part: str) -> Array:
        stored = self.shape(f"what is stored of {part}")
        shape = self.shape(part)
        if not shape:
            return self.allocate((0,), float32)
        self.context(part)
        dtype = self.dtype(part)
        kinds = []
        for name in ("indices",) if stype == _ROW_SPARSE else ("indptr", "indices"):
            kind = self.dtype(f"{name} of {part}")
            if kind.kind not in "iu":
                raise self.error(f"{name} of {part} are {kind}; wanted integers.")
            kinds.append((name, kind, self.shape(f"{name} of {part}")))
        if stored is None:
            raise self.error(f"{part} does not say how much of it is stored.")
        nbytes = prod(shape) * dtype.itemsize
        limit = max(_DENSE_FORM_NBYTES, _DENSE_FORM_RATIO * self.nbytes)
        if nbytes > limit:
            raise self.error(
                f"{part} is sparse, and as a dense array of shape {shape} it would take {nbytes} bytes; "
                f"for a file of this size at most {limit} are allowed."
            )
        values = self.data(stored, dtype, part, np.empty)
        aux = [self.data(dims or (), kind, f"{name} of {part}", np.empty) for name, kind, dims in kinds]
        dense = self.new(shape, dtype, part, self.allocate)
        dense[...] = 0
        if stype == _ROW_SPARSE:
            self.put_rows(dense, values, aux[0], part)
        else:
            self.put_csr(dense, values, aux[0], aux[1], part)
        return dense

    def put_rows(self, dense: Array, values: Array, rows: Array, part: str) -> None:
        if rows.ndim != 1 or values.shape != (len(rows), *dense.shape[1:]):
            raise self.error(
                f"{part} of shape {dense.shape} stores {values.shape} for row numbers of shape {rows.shape}."
            )
        if len(rows) and (rows.min() < 0 or rows.max() >= len(dense)):
            raise self.error(f"{part} has {len(dense)} rows, but stores rows {rows.min()} to {rows.max()}.")
        dense[rows] = values

    def put_csr(self, dense: Array, values: Array, indptr: Array, columns: Array, part: str) -> None:
        if (
            dense.ndim != 2
            or values.ndim != 1
            or columns.shape != values.shape
            or indptr.shape != (len(dense) + 1,)
            or indptr[0] != 0
            or indptr[-1] != len(values)
            or (indptr[1:] < indptr[:-1]).any()
        ):
            raise self.error(
                f"{part} of shape {dense.shape} has a row table that does not fit {values.shape} values."
            )
        if len(columns) and (columns.min() < 0 or columns.max() >= dense.shape[1]):
            raise self.error(
                f"{part} has {dense.shape[1]} columns, but stores columns {columns.min()} to {columns.max()}."
            )
        rows = np.repeat(np.arange(len(dense)), np.diff(indptr.astype("int64")))
        np.add.at(dense, (rows, columns), values)


def _raw(array: Array) -> Array:
    """The bytes of a C-ordered array, shared."""
    return array.reshape(-1).view("uint8")
