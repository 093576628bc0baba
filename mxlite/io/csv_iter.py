"""Batches of files of comma-separated numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..core.errors import FormatError, RangeError, ShapeError
from ..core.wanted import wanted, whole
from .iterator import DataDesc
from .row_iter import Path, RowIter

_LONGEST_NUMBER = 64
_TYPES = ("float32", "int32", "int64")


class CSVIter(RowIter):
    """Batches of the rows of a CSV file. data: (N, then `data_shape`);  label: (N, then `label_shape`), or
    (N,) where that is (1,).

    A line of `data_csv` has the numbers of one sample, prod(data_shape) of them with commas between; one of
    `label_csv` those of its label, without it all labels are 0. Lines that are empty do not count.
    FormatError names the line that is malformed. Files are read as they are needed. `round_batch`: see
    `row_iter.py`. `dtype`: float32, int32 or int64. `prefetch_buffer` and `ctx` are accepted for MXNet's
    sake.
    """

    def __init__(
        self,
        data_csv: Path,
        data_shape: Sequence[int] | int,
        batch_size: int,
        label_csv: Path | None = None,
        label_shape: Sequence[int] | int = (1,),
        round_batch: bool = True,
        dtype: Any = "float32",
        data_name: str = "data",
        label_name: str = "softmax_label",
        prefetch_buffer: int = 4,
        ctx: str = "gpu",
    ) -> None:
        self._dtype = np.dtype("float32" if dtype is None else dtype)
        if self._dtype.name not in _TYPES:
            raise RangeError(f"dtype is one of {_TYPES}, got {dtype!r}.")
        self._shapes = [shape_of("data_shape", data_shape), shape_of("label_shape", label_shape)]
        if self._shapes[1] == (1,):
            self._shapes[1] = ()
        super().__init__(
            batch_size,
            round_batch,
            [DataDesc(data_name, (batch_size, *self._shapes[0]), self._dtype)],
            [DataDesc(label_name, (batch_size, *self._shapes[1]), self._dtype)],
        )
        self._open(data_csv, label_csv, [_LONGEST_NUMBER * (prod(shape) + 1) for shape in self._shapes])

    def _take(self, count: int) -> list[np.ndarray]:
        parts: list[np.ndarray] = []
        for file, shape in zip(self._files, self._shapes):
            lines = file.take(count if not parts else len(parts[0]))
            parts.append(_parsed(file.name, lines, prod(shape), self._dtype).reshape(-1, *shape))
        if len(parts) == 1:
            parts.append(np.zeros((len(parts[0]), *self._shapes[1]), self._dtype))
        self._refuse_missing(len(parts[1]), len(parts[0]))
        return parts


def shape_of(what: str, shape: Sequence[int] | int) -> tuple[int, ...]:
    """A shape as a tuple; ShapeError if it is none."""
    if not isinstance(shape, int):
        wanted(what, shape, "a whole number or a tuple of them", list, tuple, np.ndarray)
    result = (shape,) if isinstance(shape, int) else tuple(whole(what, n, 0) for n in shape)
    if not result or min(result) < 1:
        raise ShapeError(f"{what} must have axes of length 1 and more, got {shape!r}.")
    return result


def _parsed(name: str, lines: list[tuple[int, str]], columns: int, dtype: np.dtype) -> np.ndarray:
    """(lines, columns)."""
    if not lines:
        return np.empty((0, columns), dtype)
    texts = [line for _, line in lines]
    try:
        # numpy looks for digits of whole numbers in a table of 256 letters, whatever letter there is.
        if all(map(str.isascii, texts)):
            rows = np.loadtxt(texts, dtype, delimiter=",", ndmin=2, comments=None)
            if rows.shape == (len(lines), columns):
                return rows
    except (ValueError, OverflowError):
        pass
    for number, line in lines:  # some line is malformed: find it
        fields = line.split(",")
        if len(fields) != columns:
            raise FormatError(
                f"{name}, line {number}: {len(fields)} numbers, but the shape wants {columns}: {line[:60]!r}."
            )
        for field in fields:
            try:
                dtype.type(field.strip())
            except (ValueError, OverflowError):
                raise FormatError(f"{name}, line {number}: {field.strip()[:40]!r} is no {dtype}.") from None
    raise FormatError(f"{name}, lines {lines[0][0]} to {lines[-1][0]} are not {columns} numbers each.")
