"""`a[key]` on the tape: the operators that express the memory accesses of `indexing.py`.

a[1:3, 0]          slice(begin=(1, 0), end=(3, 1)), Reshape
a[:, [2, 0]]       take(axis=1)
a[[0, 1], [2, 0]]  transpose and Reshape to one axis for both, take, Reshape back
"""

from __future__ import annotations

from math import prod
from typing import Any, TYPE_CHECKING

import numpy as np

from ...core.errors import IndexingError
from ..calls.invoke import call_of, capture, invoke, note_view
from ..memory.storage import Shape, Storage
from ..memory.transfer import put
from .tape import flows, MODE, origin_of

if TYPE_CHECKING:
    from ..ndarray import NDArray

Key = tuple[Any, ...]


def note_part(array: Storage, where: Key, result: Storage) -> None:
    """Record that `result` holds `array[where]`, a key of ints, slices, None and `...`."""
    capture(array)
    if not MODE.recording or not flows(origin_of(array)):
        return
    parts = _slices(where, array.storage.shape)
    part = array.alias(array.backend.part(array.storage, parts))  # only its shape and origin are used
    if part.storage.shape == array.storage.shape and all(s.step in (None, 1) for s in parts):
        part = array
    else:
        same = part.storage.shape == result.storage.shape
        cut = result if same else part
        limits = {k: tuple(getattr(s, k) for s in parts) for k in ("start", "stop", "step")}
        given = {"begin": limits["start"], "end": limits["stop"], "step": limits["step"]}
        note_view(call_of("slice", given), array, cut)
        if same:
            return
    note_view(call_of("Reshape", {"shape": result.storage.shape}), part, result)


def _slices(where: Key, shape: Shape) -> tuple[slice, ...]:
    """One slice for each axis: the key without its new axes, an int as a slice of length 1."""
    used = sum(item is not None and item is not Ellipsis for item in where)
    slices: list[slice] = []
    for item in where:
        if item is Ellipsis:
            slices += [slice(None)] * (len(shape) - used)
        elif isinstance(item, slice):
            slices.append(item)
        elif isinstance(item, int):
            slices.append(slice(item, item + 1 or None))
        elif item is not None:
            slices.append(slice(None))  # an index array: taken afterwards
    return tuple(slices + [slice(None)] * (len(shape) - len(slices)))


def gather(array: NDArray, where: Key, shape: Shape) -> NDArray:
    """`array[where]` for a key with index arrays, composed of operators; `shape` is that of the result."""
    items = [item for item in where if item is not None]
    used = sum(item is not Ellipsis for item in items)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    rest = [slice(None)] * (array.ndim - used)
    items = items[:at] + rest + [item for item in items[at:] if item is not Ellipsis]
    cut = tuple(item if isinstance(item, slice) else slice(None) for item in items)
    data = array[cut] if any(s != slice(None) for s in cut) else array
    axes = [i for i, item in enumerate(items) if not isinstance(item, slice)]
    if len(axes) == 1:
        (axis,) = axes
        taken = _take(data, _indices(items[axis], array.shape[axis]), axis, array)
        return taken.reshape(shape)
    lengths = [array.shape[i] for i in axes]
    known = np.broadcast_arrays(*(_known(items[i], array.shape[i]) for i in axes))
    flat = np.ravel_multi_index(known, lengths) if known[0].size else known[0].astype("int64")
    others = [i for i in range(data.ndim) if i not in axes]
    lined = data.transpose((*axes, *others)).reshape((prod(lengths), *(data.shape[i] for i in others)))
    taken = _take(lined, flat, 0, array)
    if not _split(where):  # the arrays' axes go where the first of them stood
        first = sum(i < axes[0] for i in others)
        count = flat.ndim
        order = [*range(count, count + first), *range(count), *range(count + first, taken.ndim)]
        taken = taken.transpose(tuple(order))
    return taken.reshape(shape)


def _take(data: NDArray, indices: Any, axis: int, array: NDArray) -> NDArray:
    if not isinstance(indices, Storage):
        values = indices
        indices = array.fresh(values.shape, np.dtype("int64"), array.context)
        put(values, indices, name="indices")
    result: NDArray = invoke(call_of("take", {"axis": axis, "mode": "wrap"}), (data, indices))
    return result


def _indices(item: Any, length: int) -> Any:
    """Indices along one axis; `take` wraps negative indices of an array that is not known yet."""
    return item if isinstance(item, Storage) else _known(item, length)


def _known(item: Any, length: int) -> np.ndarray[Any, Any]:
    """Indices as numbers from 0. Waits for an array."""
    values = item.asnumpy() if isinstance(item, Storage) else np.asarray(item)  # type: ignore[attr-defined]
    values = values.astype("int64")
    if values.size and (values.min() < -length or values.max() >= length):
        raise IndexingError(f"an index is out of range for an axis of length {length}.")
    return np.where(values < 0, values + length, values)


def _split(where: Key) -> bool:
    """True if a slice, a new axis or `...` stands between two index arrays; ints count as such."""
    state = "before"
    for item in where:
        between = item is None or item is Ellipsis or isinstance(item, slice)
        if not between and state == "after":
            return True
        state = "after" if between and state != "before" else state if between else "arrays"
    return False
