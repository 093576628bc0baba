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
only in sparse arrays. All four are read. V2 is written, byte for byte as MXNet 1.9.1 does, and V3 if V2
cannot represent the array (no axes, or an axis of length 0).

A file is untrusted: each size in it is compared with the bytes that are left before anything is allocated.

Sparse arrays are read and written as Forms (`sparse_form.py`); their indices are written as int64, as by
MXNet.

An array without axes in V0 to V2 (MXNet's mark of one that holds nothing) is read as float32 of shape (0,).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, IO

import numpy as np

from ...core.dtype import flag_of, FLAGS, float32
from ...core.errors import FormatError, ShapeError
from ..memory.storage import form_of, Storage
from ..sparse_arrays.sparse_form import CSRForm, index_type, RowSparseForm, SparseForm
from .pieces import pieces
from .stored import FileSource, sound, StoredArray

Array = np.ndarray[Any, np.dtype[Any]]
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]

MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_MAX_AXES = 32
_DEVICE_TYPES = (1, 2, 3, 5)  # cpu, gpu, pinned, shared: all are read into the CPU's memory
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2


def write_container(
    file: IO[Any], arrays: Sequence[Array | Storage | SparseForm], names: Sequence[str] = ()
) -> None:
    """Write `arrays`, numpy's, NDArrays or Forms, and their `names` if there are any, at the file's position.

    No array is copied as a whole.
    """
    if names and len(names) != len(arrays):
        raise FormatError(f"{len(arrays)} arrays need as many names or none, got {len(names)}.")
    file.write(struct.pack("<QQQ", MAGIC, 0, len(arrays)))
    for array in arrays:
        if isinstance(array, SparseForm):
            _write_sparse(file, array)
            continue
        shape, dtype = form_of(array) if isinstance(array, Storage) else (array.shape, array.dtype)
        magic = _V2 if shape and 0 not in shape else _V3
        file.write(
            struct.pack(
                f"<Iii{len(shape)}qiii",
                *(magic, _DENSE, len(shape), *shape),
                *(1, 0, flag_of(dtype)),  # device cpu(0), dtype
            )
        )
        _write_raw(file, array)
    file.write(struct.pack("<Q", len(names)))
    for name in names:
        text = name.encode()
        file.write(struct.pack("<Q", len(text)) + text)


def _write_sparse(file: IO[Any], form: SparseForm) -> None:
    form.check()
    flags = [struct.pack("<i", flag_of(index_type)) + _shape(x.shape) for x in form.places]
    stype = _CSR if isinstance(form, CSRForm) else _ROW_SPARSE
    file.write(struct.pack("<Ii", _V2, stype) + _shape(form.data.shape) + _shape(form.shape))
    file.write(struct.pack("<iii", 1, 0, flag_of(form.dtype)) + b"".join(flags))
    for part in (form.data, *form.places):
        _write_raw(file, part)


def _shape(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def _write_raw(file: IO[Any], array: Array | Storage) -> None:
    for piece in pieces(array):
        file.write(piece)


def read_container(
    source: FileSource, allocate: Allocate | None = np.empty
) -> tuple[list[Array | SparseForm | StoredArray], list[str]]:
    """Arrays and names (none, or one for each array) of a file or buffer.

    `allocate(shape, dtype)` gives the memory for each array; None leaves dense ones in the file. Bytes after
    the last name are ignored, as MXNet does. Raises FormatError for everything that is not a container.
    """
    return _Reader(source, allocate).container()


def read_array(source: FileSource, allocate: Allocate) -> Array | SparseForm:
    """The one array of bytes that hold no container, such as those in MXNet's pickles."""
    reader = _Reader(source, allocate)
    array = reader.array("the array")
    if reader.left:
        raise reader.error(f"{reader.left} bytes are left behind the array.")
    assert not isinstance(array, StoredArray)  # as memory is allocated
    return array


class _Reader:
    """A file, and the number of bytes left in it."""

    def __init__(self, source: FileSource, allocate: Allocate | None) -> None:
        self.source = source
        self.nbytes = source.nbytes
        self.allocate = allocate
        self.left = self.nbytes

    def error(self, problem: str) -> FormatError:
        return FormatError(
            f"{self.source.what} is not a readable NDArray file: at byte {self.nbytes - self.left}, {problem}"
        )

    def claim(self, nbytes: int, part: str) -> None:
        """Raise unless `nbytes` are left."""
        if nbytes > self.left:
            raise self.error(f"{part} needs {nbytes} bytes, but {self.left} are left; the file is cut short.")

    def numbers(self, form: str, part: str) -> tuple[int, ...]:
        nbytes = struct.calcsize("<" + form)
        self.claim(nbytes, part)
        return struct.unpack("<" + form, self.read(nbytes))

    def read(self, nbytes: int) -> bytes:
        data = self.source.read(self.nbytes - self.left, nbytes)
        self.left -= nbytes
        return data

    def container(self) -> tuple[list[Array | SparseForm | StoredArray], list[str]]:
        magic, _, count = self.numbers("QQQ", "the header")
        if magic != MAGIC:
            raise FormatError(
                f"{self.source.what} is not an NDArray file: it starts with {magic:#x}, wanted {MAGIC:#x}."
            )
        self.claim(4 * count, f"a list of {count} arrays")
        arrays: list[Array | SparseForm | StoredArray] = []
        for index in range(count):
            arrays.append(self.array(f"array {index}"))
        (named,) = self.numbers("Q", "the number of names")
        if named not in (0, count):
            raise self.error(f"there are {named} names for {count} arrays; wanted 0 or {count}.")
        names = []
        for index in range(named):
            (nbytes,) = self.numbers("Q", f"the length of name {index}")
            self.claim(nbytes, f"name {index}")
            text = self.read(nbytes)
            try:
                names.append(text.decode())
            except UnicodeDecodeError:
                raise self.error(f"name {index} is not UTF-8: {text[:40]!r}.") from None
        return arrays, names

    def array(self, part: str) -> Array | SparseForm | StoredArray:
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
                return self.nothing()
        elif magic == _V1:
            shape = self.shape(part)
            if not shape:
                return self.nothing()
        else:
            if magic > _MAX_AXES:
                raise self.error(f"{part} starts with {magic:#x}, which is no version and no number of axes.")
            shape = self.numbers(f"{magic}I", f"the shape of {part}")
            if not shape:
                return self.nothing()
        self.context(part)
        dtype = self.dtype(part)
        if self.allocate is None:
            return StoredArray(self.source, self.elements(shape, dtype, part), shape, dtype)
        return self.data(shape, dtype, part, self.allocate)

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
        self, shape: tuple[int, ...], dtype: np.dtype[Any], part: str, allocate: Allocate = np.empty
    ) -> Array:
        at = self.elements(shape, dtype, part)
        array = self.new(shape, dtype, part, allocate)
        if array.size:
            raw = _raw(array)
            self.source.into(at, raw.data)
            sound(raw, dtype)
        return array

    def elements(self, shape: tuple[int, ...], dtype: np.dtype[Any], part: str) -> int:
        """The offset of an array's elements; the position moves past them."""
        nbytes, at = prod(shape) * dtype.itemsize, self.nbytes - self.left
        self.claim(nbytes, f"{part} of shape {shape} and dtype {dtype}")
        self.left -= nbytes
        return at

    def nothing(self) -> Array:
        return np.empty((0,), float32) if self.allocate is None else self.allocate((0,), float32)

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], part: str, allocate: Allocate) -> Array:
        try:
            return allocate(shape, dtype)
        except (ValueError, OverflowError) as error:  # an axis beyond any address, next to one of length 0
            raise self.error(f"{part} has the impossible shape {shape}: {error}") from None

    def sparse(self, stype: int, part: str) -> Array | SparseForm:
        stored = self.shape(f"what is stored of {part}")
        shape = self.shape(part)
        if not shape:
            return self.nothing()
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
        values = self.data(stored, dtype, part)
        aux = [
            self.data(dims or (), kind, f"{name} of {part}").astype(index_type, copy=False)
            for name, kind, dims in kinds
        ]
        form: SparseForm
        if stype == _ROW_SPARSE:
            rows = aux[0]
            if rows.ndim == 1 and values.shape[:1] == rows.shape:  # MXNet lets a user give them in any order
                order = np.argsort(rows, kind="stable")
                rows, values = rows[order], values[order]
            form = RowSparseForm(shape, values, rows)
        elif len(shape) == 2:
            form = CSRForm(shape, values, aux[1], aux[0])
        else:
            raise self.error(f"{part} is a csr array of shape {shape}; wanted 2 axes.")
        try:
            form.check()
        except (FormatError, ShapeError) as problem:
            raise self.error(f"{part}: {problem}") from None
        return form


def _raw(array: Array) -> Array:
    """The bytes of a C-ordered array, shared."""
    return array.reshape(-1).view("uint8")
