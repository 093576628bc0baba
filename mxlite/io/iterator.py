"""Iterators over batches of training data, described by names, shapes and types.

    for batch in iterator: ...      batch.data, batch.label: lists of NDArray; batch.pad: rows at its end that
                                    do not count
    iterator.reset()                before each further epoch

`state()` is stored in a checkpoint, and `set_state` continues from it with the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.disk import schema
from ..core.dtype import as_dtype
from ..core.errors import ArgumentError, MissingMethodError, RangeError, StateError
from ..core.wanted import wanted
from ..ndarray import NDArray


class DataDesc(tuple[str, tuple[int, ...]]):
    """Name and shape of one input, equal to the tuple (name, shape); also has `dtype` and `layout`."""

    dtype: np.dtype[Any]
    layout: str

    def __new__(
        cls, name: str, shape: Sequence[int], dtype: Any = np.float32, layout: str = "NCHW"
    ) -> DataDesc:
        wanted("DataDesc: shape", shape, "a tuple of whole numbers", has=("__iter__",))
        desc = super().__new__(cls, (name, tuple(shape)))
        desc.dtype = as_dtype(dtype)
        desc.layout = layout
        return desc

    def __getnewargs__(self) -> tuple[str, tuple[int, ...], np.dtype[Any], str]:
        return self.name, self.shape, self.dtype, self.layout

    @property
    def name(self) -> str:
        """Name of the argument that it feeds."""
        return self[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a whole batch."""
        return self[1]

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Index of N in `layout`; 0 without a layout, -1 if it has no N."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Sequence[Any], types: Sequence[Any] | None) -> list[DataDesc]:
        """Descriptions from [(name, shape), ...] and perhaps [(name, dtype), ...]."""
        by_name = dict(types or ())
        return [DataDesc(s[0], s[1], by_name.get(s[0], np.float32)) for s in shapes]


class DataBatch:
    """One batch: lists of arrays, `pad` rows at its end that do not count, perhaps a bucket's key."""

    def __init__(
        self,
        data: Sequence[NDArray] | None,
        label: Sequence[NDArray] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ) -> None:
        for what, arrays in (("data", data), ("label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise ArgumentError(
                    f"A batch's {what} is a list of NDArrays, got {type(arrays).__name__}; write [{what}]."
                )
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        shapes = [[a.shape for a in arrays] if arrays else None for arrays in (self.data, self.label)]
        return f"{type(self).__name__}: data shapes: {shapes[0]} label shapes: {shapes[1]}"


class DataIter:
    """Base of all iterators. A subclass defines `iter_next` and `getdata`, or `next`, and `provide_data` and
    `provide_label`, lists of DataDesc; with labels `getlabel`, and `getpad` if it fills batches up.
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> DataIter:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Go back to the first batch."""

    def next(self) -> DataBatch:
        """The next batch; StopIteration at the end of the epoch."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def iter_next(self) -> bool:
        """Move to the next batch; False at the end."""
        raise MissingMethodError(f"{type(self).__name__} must define iter_next() or next().")

    def getdata(self) -> list[NDArray]:
        """The current batch's data."""
        raise MissingMethodError(f"{type(self).__name__} must define getdata().")

    def getlabel(self) -> list[NDArray] | None:
        """The current batch's labels; None without any."""
        return None

    def getindex(self) -> Any:
        """Numbers of the current batch's samples, if the iterator knows them."""
        return None

    def getpad(self) -> int | None:
        """Rows at the end of the current batch that do not count."""
        return None

    def state(self) -> dict[str, Any]:
        """The iterator's position: numbers, text, lists, dicts and numpy arrays."""
        raise StateError(
            f"A {type(self).__name__} cannot tell where it is, so training cannot be resumed on it."
        )

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to the position at which `state()` was called, on an iterator over the same data."""
        raise StateError(f"A {type(self).__name__} cannot be moved, so training cannot be resumed on it.")


class WholeBatches(DataIter):
    """Base of iterators whose batches come whole from others. A subclass defines `next`, which stores the
    batch it returns in `current_batch`.
    """

    current_batch: DataBatch | None = None

    def iter_next(self) -> bool:
        try:
            self.next()
        except StopIteration:
            return False
        return True

    def getdata(self) -> Any:
        return self._present().data

    def getlabel(self) -> Any:
        return self._present().label

    def getindex(self) -> Any:
        return self._present().index

    def getpad(self) -> int | None:
        return self._present().pad

    def _present(self) -> DataBatch:
        if self.current_batch is None:
            raise StateError("There is no present batch before the first iter_next() or next().")
        return self.current_batch


class ResizeIter(WholeBatches):
    """An iterator with epochs of exactly `size` batches: the inner one is restarted or left early.

    Without `reset_internal` the inner one goes on where it is when an epoch begins.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise RangeError(f"An epoch has at least 1 batch, got size {size!r}.")
        wanted("ResizeIter: data_iter", data_iter, "a DataIter", has=("provide_data", "next", "reset"))
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
        self.cur = 0
        self.provide_data = data_iter.provide_data  # type: ignore[attr-defined]
        self.provide_label = data_iter.provide_label  # type: ignore[attr-defined]
        for name in ("default_bucket_key", "provide_buckets"):
            if hasattr(data_iter, name):
                setattr(self, name, getattr(data_iter, name))

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def next(self) -> DataBatch:
        if self.cur == self.size:
            raise StopIteration
        try:
            batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            batch = self.data_iter.next()
        self.cur += 1
        self.current_batch = batch
        return batch

    def state(self) -> dict[str, Any]:
        return {"cur": self.cur, "data_iter": self.data_iter.state()}

    def set_state(self, state: dict[str, Any]) -> None:
        kinds = schema.fields({"cur": schema.whole(0, self.size), "data_iter": schema.anything})
        kinds(state, f"The state of a ResizeIter of {self.size} batches")
        self.data_iter.set_state(state["data_iter"])
        self.cur = state["cur"]
