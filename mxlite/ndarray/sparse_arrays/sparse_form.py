"""The stored form of sparse arrays: elements and their indices. numpy alone.

    CSRForm         (M, N); row i has data[indptr[i]:indptr[i+1]] in the columns indices[same]
    RowSparseForm   (M, ...); row indices[k] is data[k], all others are 0

Indices are int64. A form is never changed: an array that is written to gets another one. If a form repeats a
position the last element counts, as in MXNet; sums and products add all of them, as in MXNet too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from ...core.device import host_memory
from ...core.errors import FormatError, OutOfMemoryError, ShapeError

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]

index_type = np.dtype(np.int64)


@dataclass(frozen=True, eq=False)
class SparseForm:
    """Base of both forms. `data` are the stored elements."""

    shape: Shape
    data: Array
    indices: Array

    stype: ClassVar[str]
    device: ClassVar[str] = "sparse"  # belongs to no backend, so no dense kernel takes it

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that are stored."""
        return sum(x.nbytes for x in (self.data, *self.places))

    @property
    def places(self) -> tuple[Array, ...]:
        """The arrays of indices, in the order of MXNet's files."""
        raise NotImplementedError

    def like(self, data: Array) -> SparseForm:
        """A form with other elements at the same positions."""
        raise NotImplementedError

    def dense(self) -> Array:
        """All elements. Raises OutOfMemoryError if the machine does not have the memory: the shape of a
        file's array is only a claim of the file, and a few bytes can claim terabytes.

        Zeros are not touched, so that the system gives memory only for elements that are stored or read.
        """
        nbytes = self.size * self.dtype.itemsize
        try:
            if nbytes > host_memory():
                raise MemoryError
            values = np.zeros(self.shape, self.dtype)
        except (MemoryError, ValueError):
            raise OutOfMemoryError(
                f"A {self.stype} array of shape {self.shape} stores {self.nbytes} bytes; all its elements "
                f"are {nbytes}: this machine has {host_memory()}, or gives no more of them."
            ) from None
        self.check()
        self.scatter(values)
        return values

    def write_to(self, dense: Array) -> None:
        """Write all elements into an array of this shape, converted."""
        self.check()
        dense.fill(0)
        self.scatter(dense)

    def scatter(self, zeros: Array) -> None:
        """Write the stored elements into an array of zeros of this shape, converted. `check` comes first."""
        raise NotImplementedError

    def check(self, full: bool = True) -> None:
        """Raise FormatError if the arrays do not fit together. Without `full` only lengths are looked at."""
        raise NotImplementedError

    def check_order(self) -> None:
        """Raise FormatError if a position is stored twice, or after a later one. `check` comes first."""

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True, eq=False)
class CSRForm(SparseForm):
    """A matrix stored by rows, as described above."""

    indptr: Array
    stype = "csr"

    @property
    def places(self) -> tuple[Array, ...]:
        return self.indptr, self.indices

    @property
    def rows(self) -> Array:
        """The row of each stored element."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def like(self, data: Array) -> CSRForm:
        return CSRForm(self.shape, data, self.indices, self.indptr)

    def scatter(self, zeros: Array) -> None:
        zeros[self.rows, self.indices] = self.data

    def check(self, full: bool = True) -> None:
        rows, columns = self.shape
        if self.indptr.shape != (rows + 1,) or self.indices.shape != self.data.shape or self.data.ndim != 1:
            raise FormatError(
                f"A csr array of shape {self.shape} needs {rows + 1} row starts, and as many indices as "
                f"elements; got {self.indptr.shape}, {self.indices.shape} and {self.data.shape}."
            )
        if self.indptr[0] != 0 or self.indptr[-1] != len(self.data):
            raise FormatError(
                f"The row starts of a csr array go from 0 to its {len(self.data)} elements, "
                f"got {self.indptr[0]} to {self.indptr[-1]}."
            )
        if not full:
            return
        if (self.indptr[1:] < self.indptr[:-1]).any():
            row = int((self.indptr[1:] < self.indptr[:-1]).argmax())
            raise FormatError(f"The row starts of a csr array rise, but row {row} ends before it begins.")
        check_range(self.indices, columns, "columns", "column")

    def check_order(self) -> None:
        rows = self.rows
        falls = (self.indices[1:] <= self.indices[:-1]) & (rows[1:] == rows[:-1])
        if falls.any():
            at = int(falls.argmax())
            raise FormatError(
                f"The columns in a row of a csr array rise, each being there once, but row {rows[at]} has "
                f"{self.indices[at]} before {self.indices[at + 1]}."
            )

    def take(self, rows: Array) -> CSRForm:
        """The rows with these numbers, in this order."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(lengths))).astype(index_type)
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
        places = np.repeat(self.indptr[rows], lengths) + within
        return CSRForm((len(rows), self.shape[1]), self.data[places], self.indices[places], indptr)

    def part(self, rows: tuple[int, int], columns: tuple[int, int]) -> CSRForm:
        """Rows [a, b) of columns [c, d)."""
        first, last = self.indptr[rows[0]], self.indptr[rows[1]]
        indptr = self.indptr[rows[0] : rows[1] + 1] - first
        data, indices = self.data[first:last], self.indices[first:last]
        shape = (rows[1] - rows[0], columns[1] - columns[0])
        if columns != (0, self.shape[1]):
            inside = (indices >= columns[0]) & (indices < columns[1])
            indptr = np.concatenate(([0], np.cumsum(inside)))[indptr]
            data, indices = data[inside], indices[inside] - columns[0]
        return CSRForm(shape, data.copy(), indices.copy(), indptr)


@dataclass(frozen=True, eq=False)
class RowSparseForm(SparseForm):
    """An array stored by rows, as described above."""

    stype = "row_sparse"

    @property
    def places(self) -> tuple[Array, ...]:
        return (self.indices,)

    def like(self, data: Array) -> RowSparseForm:
        return RowSparseForm((self.shape[0], *data.shape[1:]), data, self.indices)

    def scatter(self, zeros: Array) -> None:
        zeros[self.indices] = self.data

    def check(self, full: bool = True) -> None:
        if self.indices.ndim != 1 or self.data.shape != (len(self.indices), *self.shape[1:]):
            raise FormatError(
                f"A row_sparse array of shape {self.shape} stores rows of {self.shape[1:]}, one for each "
                f"index; got {self.data.shape} for indices of shape {self.indices.shape}."
            )
        if not full:
            return
        check_range(self.indices, self.shape[0], "rows", "row")
        if (self.indices[1:] <= self.indices[:-1]).any():
            raise FormatError("The row numbers of a row_sparse array rise, each being there once.")

    def retained(self, rows: Array) -> RowSparseForm:
        """The given rows alone, stored even if they are 0."""
        wanted = np.unique(rows)
        check_range(wanted, self.shape[0], "rows", "row")
        return RowSparseForm(self.shape, self.at(wanted), wanted)

    def at(self, rows: Array) -> Array:
        """The given rows, in ascending order; 0 for those that are not stored."""
        values = np.zeros((len(rows), *self.shape[1:]), self.dtype)
        mine, theirs = np.isin(self.indices, rows), np.isin(rows, self.indices)
        values[theirs] = self.data[mine]
        return values

    def with_rows(self, rows: Array, data: Array) -> RowSparseForm:
        """The same array with `data` in the given rows."""
        every = np.union1d(self.indices, rows)
        values = self.at(every)
        values[np.searchsorted(every, rows)] = data
        return RowSparseForm(self.shape, values, every)


def check_range(indices: Array, limit: int, what: str, one: str) -> None:
    """Raise FormatError for an index that is not in [0, limit)."""
    if len(indices) and (indices.min() < 0 or indices.max() >= limit):
        wrong = indices[(indices < 0) | (indices >= limit)][0]
        raise FormatError(f"The array has {limit} {what}, not {one} {wrong}.")


def csr_of(dense: Array) -> CSRForm:
    """The csr form of the elements that are not 0."""
    if dense.ndim != 2:
        raise ShapeError(f"A csr array has 2 axes, got the shape {dense.shape}.")
    rows, columns = np.nonzero(dense)
    return CSRForm(dense.shape, dense[rows, columns], columns.astype(index_type), starts(rows, len(dense)))


def row_sparse_of(dense: Array) -> RowSparseForm:
    """The row_sparse form of the rows that are not all 0."""
    if dense.ndim < 1:
        raise ShapeError(f"A row_sparse array has at least 1 axis, got the shape {dense.shape}.")
    rows = np.flatnonzero(dense.any(axis=tuple(range(1, dense.ndim))))
    return RowSparseForm(dense.shape, dense[rows], rows.astype(index_type))


def starts(rows: Array, count: int) -> Array:
    """Offset of each of `count` rows, and the end of the last, in elements with ascending row numbers."""
    return np.searchsorted(rows, np.arange(count + 1)).astype(index_type)


def empty_form(stype: str, shape: Shape, dtype: np.dtype[Any]) -> SparseForm:
    """A form that stores nothing, of an array of zeros."""
    none = np.zeros(0, index_type)
    if stype == "csr":
        if len(shape) != 2:
            raise ShapeError(f"A csr array has 2 axes, got the shape {shape}.")
        return CSRForm(shape, np.zeros(0, dtype), none, np.zeros(shape[0] + 1, index_type))
    if len(shape) < 1:
        raise ShapeError(f"A row_sparse array has at least 1 axis, got the shape {shape}.")
    return RowSparseForm(shape, np.zeros((0, *shape[1:]), dtype), none)


def stacked(parts: Sequence[CSRForm]) -> CSRForm:
    """The rows of all parts, concatenated."""
    ends = np.cumsum([0, *(len(x.data) for x in parts)])
    return CSRForm(
        (sum(x.shape[0] for x in parts), parts[0].shape[1]),
        np.concatenate([x.data for x in parts]),
        np.concatenate([x.indices for x in parts]),
        np.concatenate([[0], *(x.indptr[1:] + begin for x, begin in zip(parts, ends))]).astype(index_type),
    )


# -- sums and products -------------------------------------------------------------------------------------


def united(a: SparseForm, b: SparseForm, ufunc: np.ufunc) -> SparseForm:
    """``ufunc(a, b)`` at every position that either stores; both are of one kind."""
    if all(np.array_equal(x, y) for x, y in zip(a.places, b.places)):
        return a.like(ufunc(a.data, b.data))
    if isinstance(a, CSRForm):
        assert isinstance(b, CSRForm)
        width = a.shape[1]
        keys = [x.rows * width + x.indices for x in (a, b)]
        every = np.union1d(*keys)
        values = []
        for form, key in zip((a, b), keys):
            full = np.zeros(len(every), form.dtype)
            full[np.searchsorted(every, key)] = form.data
            values.append(full)
        rows, columns = np.divmod(every, width)
        return CSRForm(a.shape, ufunc(*values), columns, starts(rows, a.shape[0]))
    assert isinstance(a, RowSparseForm) and isinstance(b, RowSparseForm)
    rows = np.union1d(a.indices, b.indices)
    return RowSparseForm(a.shape, ufunc(a.at(rows), b.at(rows)), rows)


def in_both(a: CSRForm, b: CSRForm) -> CSRForm:
    """``a * b`` at the positions that both store."""
    width = a.shape[1]
    one, other = (x.rows * width + x.indices for x in (a, b))
    both, mine, theirs = np.intersect1d(one, other, return_indices=True)
    rows, columns = np.divmod(both, width)
    return CSRForm(a.shape, a.data[mine] * b.data[theirs], columns, starts(rows, a.shape[0]))
