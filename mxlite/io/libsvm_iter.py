"""Batches of LIBSVM files, which list only elements that are not 0.

label index:value index:value ...                indices from 0 on, as MXNet counts them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import FormatError, RangeError, ShapeError
from ..ndarray import NDArray
from ..ndarray.operators.creation import sharing
from ..ndarray.sparse_arrays.sparse_array import sparse_array
from ..ndarray.sparse_arrays.sparse_form import CSRForm, index_type, stacked
from .csv_iter import shape_of
from .iterator import DataDesc
from .row_iter import is_null, Lines, Path, RowIter

_LONGEST_PAIR = 64


class LibSVMIter(RowIter):
    """Batches of the rows of a LIBSVM file, as csr arrays; with `stype` 'default' as dense ones.

    data: (N, `data_shape`);  label: (N,), or (N, `label_shape`) out of `label_libsvm`, a second file of the
    same form, stored as the data. A dense batch takes 4 * N * data_shape bytes, whatever is 0 in it; a csr
    one 12 bytes for each element that the file names. FormatError names the line that is malformed. Part
    `part_index` of `num_parts` has the lines whose number, from 0 on, leaves that remainder (MXNet cuts the
    file by bytes). `round_batch` must be True, as in MXNet. `prefetch_buffer` and `ctx` are accepted for
    MXNet's sake.
    """

    def __init__(
        self,
        data_libsvm: Path,
        data_shape: Sequence[int] | int,
        batch_size: int,
        label_libsvm: Path | None = None,
        label_shape: Sequence[int] | int = (1,),
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        data_name: str = "data",
        label_name: str = "softmax_label",
        prefetch_buffer: int = 4,
        ctx: str = "gpu",
        stype: str = "csr",
    ) -> None:
        if stype not in ("csr", "default"):
            raise RangeError(f"LibSVMIter: stype is 'csr' or 'default', got {stype!r}.")
        self._stype = stype
        if not round_batch:
            raise RangeError("LibSVMIter fills its last batch from the front: round_batch must be True.")
        if not 0 <= part_index < num_parts:
            raise RangeError(f"part_index is in [0, num_parts) = [0, {num_parts}), got {part_index}.")
        self._shapes = [shape_of("data_shape", data_shape), shape_of("label_shape", label_shape)]
        if any(len(s) != 1 for s in self._shapes):
            raise ShapeError(
                f"data_shape and label_shape have one axis, got {data_shape!r} and {label_shape!r}."
            )
        own_labels = label_libsvm is None or is_null(label_libsvm)
        (columns,), (labels,) = self._shapes
        if own_labels != (labels == 1):
            raise ShapeError(
                f"label_shape is (1,) without label_libsvm and longer with it, got {tuple(self._shapes[1])}."
            )
        super().__init__(
            batch_size,
            True,
            [DataDesc(data_name, (batch_size, columns))],
            [DataDesc(label_name, (batch_size,) if own_labels else (batch_size, labels))],
        )
        self._parts = num_parts, part_index
        self._open(data_libsvm, label_libsvm, [_LONGEST_PAIR * (shape[0] + 2) for shape in self._shapes])

    def _take(self, count: int) -> list[Any]:
        (columns,), (labels,) = self._shapes
        data, own = _parsed(self._files[0], self._lines(self._files[0], count), columns)
        if len(self._files) == 1:
            return [data, own]
        given, _ = _parsed(self._files[1], self._lines(self._files[1], len(data)), labels)
        self._refuse_missing(len(given), len(data))
        return [data, given]

    def _join(self, parts: Sequence[Any]) -> Any:
        return stacked(parts) if isinstance(parts[0], CSRForm) else super()._join(parts)

    def _as_array(self, values: Any) -> NDArray:
        if not isinstance(values, CSRForm):
            return super()._as_array(values)
        return sparse_array(values) if self._stype == "csr" else sharing(values.dense())

    def _lines(self, file: Lines, count: int) -> list[tuple[int, str]]:
        """Up to `count` lines of this part."""
        parts, index = self._parts
        if parts == 1:
            return file.take(count)
        lines: list[tuple[int, str]] = []
        while len(lines) < count:
            group = file.take(parts)
            lines += group[index : index + 1]
            if len(group) < parts:
                break
        return lines


def _parsed(file: Lines, lines: list[tuple[int, str]], columns: int) -> tuple[CSRForm, np.ndarray]:
    """(lines, columns) and the labels, (lines,)."""
    labels = np.zeros(len(lines), np.float32)
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    for row, (number, line) in enumerate(lines):
        fields = line.replace(":", " ").split()
        if len(fields) % 2 == 0 or line.count(":") != len(fields) // 2:
            raise _malformed(file, number, line)
        try:
            values = np.array(fields, np.float64)
        except ValueError:
            raise _malformed(file, number, line) from None
        places = values[1::2]
        wrong = (places < 0) | (places >= columns) | (places != np.floor(places))
        if wrong.any():
            raise FormatError(
                f"{file.name}, line {number}: index {fields[1::2][int(wrong.argmax())]} is not in "
                f"[0, {columns})."
            )
        labels[row] = values[0]
        rows.append((values[2::2].astype(np.float32), places.astype(index_type)))
    data, indices = (np.concatenate([x[i] for x in rows] or [np.zeros(0)]) for i in range(2))
    indptr = np.cumsum([0, *(len(x[0]) for x in rows)])
    form = CSRForm(
        (len(lines), columns),
        data.astype(np.float32, copy=False),
        indices.astype(index_type, copy=False),
        indptr.astype(index_type, copy=False),
    )
    return form, labels


def _malformed(file: Lines, number: int, line: str) -> FormatError:
    return FormatError(
        f"{file.name}, line {number}: should be a label and pairs index:value, but is {line[:60]!r}."
    )
