"""The records of a part of a file, in the order of an epoch.

With an index (or, to shuffle without one, after one pass over the heads of all records) the records of a
part are known by their bytes, and an epoch is a permutation that follows from seed and epoch alone. Without,
a part is a range of the file, read from front to back; a file of any size is never held.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from ...core.disk.files import opened
from ...core.errors import FormatError
from ...core.wanted import wanted_path
from ..recordio.files import read_index
from ..recordio.record import next_record, read_record, record_offsets
from .options import ReadOptions


class Mark(NamedTuple):
    """A position in the records: the epoch's order, the index in it, the byte in the file."""

    order: np.ndarray
    at: int
    byte: int


class Records:
    """The records of one part of a file. `start` goes to a position in an epoch, `next` reads from there."""

    def __init__(self, options: ReadOptions) -> None:
        self.name = wanted_path("path_imgrec", options.path_imgrec)
        self._file = opened(self.name)
        self._shuffle = options.shuffle
        self._seed = options.seed
        try:
            self._offsets = self._known(options)
            self._begin, self._end = self._stretch(options)
        except BaseException:
            self._file.close()
            raise
        self._order = np.arange(0)
        self._at = 0
        self.start(0, 0)

    def _known(self, o: ReadOptions) -> np.ndarray | None:
        """Offsets of this part's records, in the file's order; None without an index."""
        size = os.fstat(self._file.fileno()).st_size
        if o.path_imgidx:
            known = np.array(sorted(at for _, at in read_index(o.path_imgidx, size)), np.int64)
        elif o.shuffle:
            known = np.fromiter(record_offsets(self._file, self.name), np.int64)
        else:
            return None
        each = -(-len(known) // o.num_parts)
        part = known[each * o.part_index : each * (o.part_index + 1)]
        if not len(part):
            raise FormatError(
                f"{o.path_imgidx or self.name} has {len(known):,} records, none in part {o.part_index} of "
                f"{o.num_parts}."
            )
        return part

    def _stretch(self, o: ReadOptions) -> tuple[int, int]:
        """[begin, end) of this part in bytes, as MXNet cuts a file: each record is in one part."""
        size = os.fstat(self._file.fileno()).st_size
        each = -(-size // o.num_parts)
        each += -each % 4
        begin, end = (min(each * (o.part_index + k), size) for k in (0, 1))
        if self._offsets is None:
            begin = next_record(self._file, begin) if begin else 0
            end = next_record(self._file, end)
            if begin >= end:
                raise FormatError(
                    f"{self.name}, {size:,} bytes, has no record in part {o.part_index} of {o.num_parts}."
                )
        return begin, end

    def start(self, epoch: int, position: int) -> None:
        """Go to the record number `position` of an epoch."""
        if self._offsets is None:
            self._file.seek(self._begin)
            if position:
                offsets = record_offsets(self._file, self.name, self._begin, self._end)
                # Past the last one `next` finds nothing.
                at = next((x for i, x in enumerate(offsets) if i == position), self._end)
                self._file.seek(at)
            return
        count = len(self._offsets)
        if self._shuffle:
            key = np.array([self._seed % 2**64, epoch], np.uint64)
            self._order = np.random.Generator(np.random.Philox(key=key)).permutation(count)
        else:
            self._order = np.arange(count)
        self._at = position

    def next(self) -> tuple[bytes, int] | None:
        """A record and the byte it begins at; None at the end of the epoch."""
        if self._offsets is None:
            at = self._file.tell()
            if at >= self._end:
                return None
        else:
            if self._at >= len(self._order):
                return None
            at = int(self._offsets[self._order[self._at]])
            self._at += 1
            self._file.seek(at)
        record = read_record(self._file, self.name)
        if record is None:
            raise FormatError(f"{self.name} was cut while it was read: no record is left at byte {at:,}.")
        return record, at

    def where(self) -> Mark:
        """The current position, for `back`."""
        return Mark(self._order, self._at, self._file.tell())

    def back(self, mark: Mark) -> None:
        """Go back to a position that `where` returned."""
        self._order, self._at, at = mark
        self._file.seek(at)

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()
