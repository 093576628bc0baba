"""Batches of arrays in memory.

    order    the rows of the data in the sequence of this epoch; shuffling permutes it, never the data
    cursor   index in `order` of the current batch's first row; -batch_size before the first one

Handling of a batch that the data does not fill (`last_batch_handle`):

    pad        the batch is filled from the front of `order`, `pad` counts those rows
    discard    the batch is left out
    roll_over  the batch is left out; its rows come first in the next epoch (there the cursor starts negative)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.disk import schema
from ..core.errors import ArgumentError, FormatError, nearest, RangeError, ShapeError, StateError
from ..ndarray import from_numpy, NDArray
from ..ndarray.sparse import CSRNDArray
from ..ndarray.sparse_arrays.sparse_form import CSRForm
from .iterator import DataDesc, DataIter

Source = np.ndarray | CSRForm

_HANDLES = ("pad", "discard", "roll_over")


class NDArrayIter(DataIter):
    """Iterates over numpy arrays or NDArrays.

    data, label: one array, a list of arrays (named `_0_data`, `_1_data`, ...) or a dict by name (used in
    sorted order), all with the same length N along the batch axis of `layout`. NDArrays keep their dtype,
    others become float32. A float32 numpy array is not copied: change it, and later batches change. The rows
    of a csr array are axis 0; its batches are dense, as MXNet's.

    With `shuffle` rows are permuted at the start and at each `reset`, by numpy's global generator as in MXNet
    (`np.random.seed` repeats it), or by one of its own when `seed` is given.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
        seed: int | None = None,
    ) -> None:
        if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__") or batch_size < 1:
            raise RangeError(f"batch_size must be a whole number of at least 1, got {batch_size!r}.")
        if last_batch_handle not in _HANDLES:
            raise RangeError(
                f"last_batch_handle is one of {_HANDLES}, got {last_batch_handle!r}."
                f"{nearest(str(last_batch_handle), _HANDLES)}"
            )
        super().__init__(int(batch_size))
        self.layout = layout
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self._axis = layout.find("N")
        if self._axis < 0:
            raise ShapeError(f"layout {layout!r} has no batch axis N.")
        self._data = _named(data, "data", data_name)
        self._label = [] if label is None else _named(label, "label", label_name)
        if not self._data:
            raise ShapeError("NDArrayIter needs at least one array of data.")
        self.num_data = self._count_rows()
        if self.num_data < self.batch_size and last_batch_handle != "pad":
            raise ShapeError(
                f"batch_size {self.batch_size} is larger than the data, {self.num_data} rows: "
                f"{last_batch_handle!r} would never give a batch. Use 'pad' or a smaller batch."
            )
        # MXNet's shuffling is that of numpy's legacy generator; both of these are one.
        self._generator: Any = np.random if seed is None else np.random.RandomState(seed)
        self._order = np.arange(self.num_data)
        self._permutation = np.arange(self.num_data)
        self._carried = np.arange(0)  # rows that rolled over from the last epoch
        self.cursor = -self.batch_size
        self.reset()

    def _count_rows(self) -> int:
        rows: dict[str, int] = {}
        for name, source in self._data + self._label:
            if source.ndim <= self._axis:
                raise ShapeError(
                    f"{name!r} of shape {source.shape} has no axis {self._axis}, the N of {self.layout!r}."
                )
            rows[name] = source.shape[self._axis]
        first, count = next(iter(rows.items()))
        for name, n in rows.items():
            if n != count:
                raise ShapeError(
                    f"{name!r} has {n} rows, but {first!r} has {count}; they must be equally many."
                )
        if count == 0:
            raise ShapeError(f"{first!r} has no rows.")
        return count

    # -- descriptions and data -----------------------------------------------------------------

    @property
    def provide_data(self) -> list[DataDesc]:
        """Names, batch shapes and types of the data."""
        return self._describe(self._data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Names, batch shapes and types of the labels."""
        return self._describe(self._label)

    def _describe(self, sources: list[tuple[str, Source]]) -> list[DataDesc]:
        n = self._axis
        return [
            DataDesc(k, (*v.shape[:n], self.batch_size, *v.shape[n + 1 :]), v.dtype, self.layout)
            for k, v in sources
        ]

    @property
    def data(self) -> list[tuple[str, NDArray]]:
        """All data in the order of this epoch; copies."""
        return [(k, _taken(v, self._order, self._axis)) for k, v in self._data]

    @property
    def label(self) -> list[tuple[str, NDArray]]:
        """All labels in the order of this epoch; copies."""
        return [(k, _taken(v, self._order, self._axis)) for k, v in self._label]

    @property
    def idx(self) -> np.ndarray:
        """The rows of the data in the order of this epoch: (num_data,) of int; a copy."""
        return self._order.copy()

    # -- moving --------------------------------------------------------------------------------

    def reset(self) -> None:
        if self.shuffle:
            self._shuffle()
        left_over = self.num_data - self.batch_size < self.cursor < self.num_data
        if self.last_batch_handle == "roll_over" and left_over:
            self.cursor -= self.num_data + self.batch_size
        else:
            self._rewind()

    def hard_reset(self) -> None:
        """Start anew, also without the rows that were to roll over."""
        if self.shuffle:
            self._shuffle()
        self._rewind()

    def _rewind(self) -> None:
        """Go to the first row of the current order."""
        self.cursor = -self.batch_size
        self._carried = self._carried[:0]

    def _shuffle(self) -> None:
        # MXNet shuffles a permutation further and applies it to data that is already permuted.
        permutation = self._permutation.copy()
        self._generator.shuffle(permutation)
        self._permutation, self._order = permutation, self._order[permutation]

    def iter_next(self) -> bool:
        self.cursor += self.batch_size
        if self.cursor >= self.num_data:
            return False
        if self.last_batch_handle != "pad" and self.cursor + self.batch_size > self.num_data:
            if self.last_batch_handle == "roll_over":
                self._carried = self._order[self.cursor :]
            return False
        return True

    def getindex(self) -> None:
        """None, as in MXNet."""

    def rows(self) -> np.ndarray:
        """The current batch's rows of the data, in its order: (batch_size,) of int."""
        if not -self.batch_size < self.cursor < self.num_data:
            raise StateError("There is no present batch: call reset(), then next().")
        end = self.cursor + self.batch_size
        if self.cursor < 0:
            return np.concatenate([self._carried, self._order[:end]])
        if end <= self.num_data:
            return self._order[self.cursor : end]
        return self._order[np.arange(self.cursor, end) % self.num_data]

    def getdata(self) -> list[NDArray]:
        return self._batch(self._data)

    def getlabel(self) -> list[NDArray]:
        return self._batch(self._label)

    def _batch(self, sources: list[tuple[str, Source]]) -> list[NDArray]:
        rows = self.rows()
        return [_taken(v, rows, self._axis) for _, v in sources]

    def getpad(self) -> int:
        if self.last_batch_handle == "pad":
            return max(0, self.cursor + self.batch_size - self.num_data)
        return max(0, -self.cursor)  # as MXNet counts the rows that rolled over

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Position, order and, when shuffling, the generator's state; the data itself is not in it."""
        generator = None
        if self.shuffle:
            kind, keys, *rest = self._generator.get_state()
            generator = [str(kind), keys, *(float(x) if isinstance(x, float) else int(x) for x in rest)]
        return {
            "num_data": self.num_data,
            "batch_size": self.batch_size,
            "last_batch_handle": self.last_batch_handle,
            "cursor": self.cursor,
            "order": self._order,
            "permutation": self._permutation,
            "carried": self._carried,
            "generator": generator,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()` of an iterator over the same data: bitwise the same batches.

        When shuffling by numpy's global generator, that generator's state is restored too.
        FormatError if the state is of other data, another batch size or damaged; nothing is changed then.
        """
        mine = self.state()
        _STATE(state, "The state of an NDArrayIter")
        for key in ("num_data", "batch_size", "last_batch_handle"):
            if state[key] != mine[key]:
                raise FormatError(
                    f"The state is of an iterator with {key} {state[key]!r}, not {mine[key]!r}."
                )
        if (state["generator"] is None) == self.shuffle:
            raise FormatError(f"The state is of an iterator with shuffle={not self.shuffle}.")
        order, permutation = (_permutation(state[k], k, self.num_data) for k in ("order", "permutation"))
        carried, cursor = state["carried"].astype(np.int64), state["cursor"]
        awaited = -cursor if cursor > -self.batch_size else -cursor - self.batch_size
        if carried.size and not 0 <= carried.min() <= carried.max() < self.num_data:
            raise FormatError(f"The state's 'carried' must be rows in [0, {self.num_data}).")
        if not -2 * self.batch_size < cursor < self.num_data + self.batch_size or (
            cursor < 0 and carried.size != awaited
        ):
            raise FormatError(
                f"The state's cursor {cursor} does not fit {self.num_data} rows, {carried.size} carried."
            )
        if self.shuffle:
            self._generator.set_state(_generator_state(state["generator"]))
        self._order, self._permutation, self._carried, self.cursor = order, permutation, carried, cursor


def _named(arrays: Any, what: str, default_name: str) -> list[tuple[str, Source]]:
    """[(name, numpy array or csr form)], sorted by name."""
    if isinstance(arrays, (np.ndarray, NDArray)):
        arrays = [arrays]
    if isinstance(arrays, (list, tuple)):
        if not all(isinstance(a, (np.ndarray, NDArray)) for a in arrays):
            raise ArgumentError(
                f"{what} given as a list must hold arrays, got {[type(a).__name__ for a in arrays][:5]}; "
                f"make one array of it with numpy.array."
            )
        single = len(arrays) == 1
        arrays = {default_name if single else f"_{i}_{default_name}": a for i, a in enumerate(arrays)}
    if not isinstance(arrays, Mapping):
        raise ArgumentError(
            f"{what} must be an NDArray, a numpy array, a list of them or a dict of them by name, "
            f"got {type(arrays).__name__}."
        )
    return [(name, _host(what, name, arrays[name])) for name in sorted(arrays)]


def _host(what: str, name: str, source: Any) -> Source:
    if isinstance(source, CSRNDArray):
        source.check_format()
        form: CSRForm = source.form
        return form
    if isinstance(source, NDArray):
        return source.asnumpy()
    try:
        return np.asarray(source, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} {name!r} cannot become an array of float32: {error}.") from None


def _taken(source: Source, rows: np.ndarray, axis: int) -> NDArray:
    """A new array of the given rows."""
    return from_numpy(
        source.take(rows).dense() if isinstance(source, CSRForm) else np.take(source, rows, axis)
    )


def _generator_state(values: Any) -> tuple[Any, ...]:
    """A checked argument for numpy's `set_state`, which would read past the end of a short key."""
    kind, keys, *rest = values
    if keys.shape != (624,):
        raise FormatError(
            f"The state's random generator is damaged: {keys.size} words; a Mersenne twister has 624."
        )
    return kind, keys.astype(np.uint32), *rest


def _permutation(values: Any, key: str, n: int) -> np.ndarray:
    if values.shape != (n,) or not np.array_equal(np.sort(values), np.arange(n)):
        raise FormatError(f"The state's {key!r} is not an order of {n} rows.")
    order: np.ndarray = values.astype(np.int64)
    return order


_STATE = schema.fields(
    {
        "num_data": schema.whole(),
        "batch_size": schema.whole(),
        "last_batch_handle": schema.text(),
        "cursor": schema.whole(-schema.MOST),
        "order": schema.array("iu", 1),
        "permutation": schema.array("iu", 1),
        "carried": schema.array("iu", 1),
        "generator": schema.optional(
            schema.row(
                schema.exactly("MT19937"),
                schema.array("u", 1),
                schema.whole(0, 624),
                schema.whole(0, 1),
                schema.real(),
            )
        ),
    }
)
