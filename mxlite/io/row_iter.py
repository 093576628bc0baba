"""Batches of rows of text files, read as they are needed, with MXNet's choices at the end of a file.

round_batch      the last batch is filled from the front of the file, `pad` counts those rows, and the next
                 epoch starts after them
not              the last batch is filled with zeros, `pad` counts them
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.disk import schema
from ..core.disk.files import opened
from ..core.errors import FormatError, RangeError, ShapeError, StateError
from ..core.wanted import wanted_path
from ..ndarray import NDArray
from ..ndarray.operators.creation import sharing
from .iterator import DataBatch, DataDesc, DataIter

Path = str | os.PathLike[str]


def is_null(path: Path) -> bool:
    """True for the name by which MXNet's programs say that there is no file."""
    return os.fspath(path) == "NULL"


class Lines:
    """The lines of a file that are not empty, some at a time. None is longer than `longest` bytes."""

    def __init__(self, path: Path, longest: int) -> None:
        self.name = wanted_path("The file to read", path)
        self._longest = longest
        self._file = opened(self.name, "r", encoding="utf-8", errors="replace")
        self._number = 0

    def take(self, count: int) -> list[tuple[int, str]]:
        """Up to `count` lines with their numbers, from 1 on; fewer only at the end of the file."""
        lines: list[tuple[int, str]] = []
        while len(lines) < count:
            line = self._file.readline(self._longest + 1)
            if not line:
                break
            self._number += 1
            if len(line) > self._longest:
                raise FormatError(
                    f"{self.name}, line {self._number}: longer than {self._longest:,} characters, the most "
                    f"that so many numbers take."
                )
            if line := line.strip():
                lines.append((self._number, line))
        return lines

    def rewind(self) -> None:
        self._file.seek(0)
        self._number = 0

    def close(self) -> None:
        self._file.close()


class RowIter(DataIter):
    """Base of the iterators over text files. A subclass gives `_take`, descriptions and `_open`."""

    _files: list[Lines]

    def __init__(
        self, batch_size: int, round_batch: bool, descs: list[DataDesc], labels: list[DataDesc]
    ) -> None:
        if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__") or batch_size < 1:
            raise RangeError(f"batch_size must be a whole number of at least 1, got {batch_size!r}.")
        super().__init__(int(batch_size))
        self.round_batch = round_batch
        self.provide_data = descs
        self.provide_label = labels
        self._present: list[Any] | None = None
        self._pad = 0
        self._ended = False
        self._read = 0
        """Rows of the file that have been passed."""
        self._next_epoch_at = 0

    def _take(self, count: int) -> list[Any]:
        """Up to `count` rows of each array, data first."""
        raise NotImplementedError

    def _open(self, data: Path, labels: Path | None, longest: Sequence[int]) -> None:
        """Open the file of data and that of labels, if there is one; longest: of their lines, in bytes."""
        paths = [data] if labels is None or is_null(labels) else [data, labels]
        self._files = [Lines(path, most) for path, most in zip(paths, longest)]

    def _refuse_missing(self, labels: int, rows: int) -> None:
        """Raise FormatError if the file of labels has fewer rows than that of data."""
        if labels < rows:
            raise FormatError(
                f"{self._files[1].name} ends before {self._files[0].name}: each row of data needs a label."
            )

    def _rewind(self) -> None:
        """Go to the first row."""
        for file in self._files:
            file.rewind()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def __del__(self) -> None:
        if hasattr(self, "_files"):
            self.close()

    def reset(self) -> None:
        """Start the next epoch."""
        if not self._next_epoch_at:
            self._rewind()
            self._read = 0
        self._next_epoch_at = 0
        self._ended = False
        self._present = None

    def iter_next(self) -> bool:
        self._present = None
        if self._ended:
            return False
        parts = self._take(self.batch_size)
        rows = len(parts[0])
        self._read += rows
        self._pad = missing = self.batch_size - rows
        if missing:
            self._ended = True
        if not rows:
            return False
        if missing and self.round_batch:
            self._rewind()
            front = self._take(missing)
            if len(front[0]) < missing:
                raise ShapeError(
                    f"{self.batch_size} rows make a batch, but there are only {rows}; with round_batch "
                    f"they must fill one."
                )
            self._read = self._next_epoch_at = missing
            parts = [self._join(pair) for pair in zip(parts, front)]
        elif missing:
            parts = [np.concatenate([p, np.zeros((missing, *p.shape[1:]), p.dtype)]) for p in parts]
        self._present = parts
        return True

    def _join(self, parts: Sequence[Any]) -> Any:
        """Rows of one array, one part after another."""
        return np.concatenate(parts)

    def _as_array(self, values: Any) -> NDArray:
        """Rows as they are returned."""
        return sharing(values)

    def _arrays(self) -> list[Any]:
        if self._present is None:
            raise StateError("There is no present batch: call next(), or reset() at the end of an epoch.")
        return self._present

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())

    def getdata(self) -> NDArray:  # type: ignore[override]  # one array, as those of MXNet's iterators in C++
        return self._as_array(self._arrays()[0])

    def getlabel(self) -> NDArray:  # type: ignore[override]
        return self._as_array(self._arrays()[1])

    def getpad(self) -> int:
        return self._pad

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Number of rows that have been passed, and the state of the epoch."""
        return {
            "batch_size": self.batch_size,
            "read": self._read,
            "ended": self._ended,
            "next_epoch_at": self._next_epoch_at,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()` of an iterator over the same files."""
        kind = type(self).__name__
        _STATE(state, f"The state of a {kind}")
        if state["batch_size"] != self.batch_size:
            raise FormatError(
                f"The state is of a {kind} with batch_size {state['batch_size']!r}, not {self.batch_size}."
            )
        self._rewind()
        left = state["read"]
        while left > 0:
            skipped = len(self._take(min(left, self.batch_size))[0])
            if not skipped:
                raise FormatError(
                    f"The state is {left} rows behind the end of the file: it is of another file."
                )
            left -= skipped
        self._read, self._next_epoch_at = state["read"], state["next_epoch_at"]
        self._ended, self._present = state["ended"], None


_STATE = schema.fields(
    {
        "batch_size": schema.whole(),
        "read": schema.whole(),
        "ended": schema.flag,
        "next_epoch_at": schema.whole(),
    }
)
