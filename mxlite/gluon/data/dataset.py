"""Data sets: samples by number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.errors import MissingMethodError, RangeError, ShapeError
from ...core.wanted import wanted_function, whole
from ...io import recordio
from ...ndarray import NDArray


class Dataset:
    """Base of data sets: a subclass defines `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        raise MissingMethodError(f"{type(self).__name__} must define __getitem__(idx).")

    def __len__(self) -> int:
        raise MissingMethodError(f"{type(self).__name__} must define __len__().")

    def filter(self, fn: Callable[[Any], bool]) -> Dataset:
        """The samples for which `fn(sample)` is true; it is called with each, now."""
        wanted_function("filter: fn", fn)
        return Chosen(self, [i for i in range(len(self)) if fn(self[i])])

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part number `index` of `num_shards` of nearly equal size."""
        count = whole("shard: num_shards", num_shards, 1)
        if not 0 <= whole("shard: index", index, 0) < count:
            raise RangeError(f"shard: index must be below num_shards={count}, got {index}.")
        size, rest = divmod(len(self), count)
        start = size * index + min(index, rest)
        return Chosen(self, range(start, start + size + (index < rest)))

    def take(self, count: int | None) -> Dataset:
        """The first `count` samples; all for None, or if there are fewer."""
        number = len(self) if count is None else min(whole("take: count", count, 0), len(self))
        return Chosen(self, range(number))

    def sample(self, sampler: Iterable[int]) -> Dataset:
        """The samples whose numbers `sampler` gives, in its order."""
        return Chosen(self, list(sampler))

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """`fn(*sample)` of each sample: when it is asked for, or of all now if not `lazy`."""
        made = Transformed(self, wanted_function("transform: fn", fn))
        return made if lazy else SimpleDataset([made[i] for i in range(len(made))])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """`fn` of the first part of each sample, the image of (image, label); the rest stays."""
        return self.transform(OfFirst(wanted_function("transform_first: fn", fn)), lazy)


class Chosen(Dataset):
    """Some samples of a data set, by number."""

    def __init__(self, data: Dataset, numbers: Sequence[int]) -> None:
        self._data = data
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, idx: int) -> Any:
        return self._data[self._numbers[idx]]


class Transformed(Dataset):
    """The samples of a data set, changed by a function when they are asked for."""

    def __init__(self, data: Dataset, fn: Callable[..., Any]) -> None:
        self._data = data
        self._fn = fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        item = self._data[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class OfFirst:
    """A function of the first of several values, as a function of all of them."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, x: Any, *rest: Any) -> Any:
        return (self._fn(x), *rest) if rest else self._fn(x)


class SimpleDataset(Dataset):
    """A list as a data set."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]


class ArrayDataset(Dataset):
    """Arrays or lists of one length, side by side: sample i is (a[i], b[i], ...), or a[i] of a single one."""

    def __init__(self, *args: Any) -> None:
        if not args:
            raise ShapeError("ArrayDataset needs at least one array.")
        lengths = [len(a) for a in args]
        if len(set(lengths)) > 1:
            raise ShapeError(f"ArrayDataset needs arrays of one length, got lengths {lengths}.")
        self._length = lengths[0]
        # One copy to numpy now, so that a sample costs no engine operation.
        self._data = [a.asnumpy() if isinstance(a, NDArray) and a.ndim == 1 else a for a in args]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, idx: int) -> Any:
        found = tuple(d[idx] for d in self._data)
        return found[0] if len(found) == 1 else found


class RecordFileDataset(Dataset):
    """The records of a RecordIO file, as bytes; its index lies beside it, with the ending `.idx`.

    A worker process opens the file for itself.
    """

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.idx_file = os.path.splitext(filename)[0] + ".idx"
        self._opened: tuple[int, Any] | None = None
        self._length = len(self._record.keys)

    @property
    def _record(self) -> Any:
        process = os.getpid()
        if self._opened is None or self._opened[0] != process:
            self._opened = process, recordio.MXIndexedRecordIO(self.idx_file, self.filename, "r")
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, idx: int) -> Any:
        record = self._record
        return record.read_idx(record.keys[idx])
