"""`a[key]` and `a[key] = value`.

| key                                                    | `a[key]`                                        |
|--------------------------------------------------------|-------------------------------------------------|
| ints, slices, None, `...`, and the elements are adjacent | a view: shares memory and Var with `a`        |
| the same, elements not adjacent                        | a copy                                          |
| with a list, a numpy array or an NDArray of indices    | a copy; index arrays broadcast, as in numpy     |

A single element has the shape (1,). Keys known to Python are checked at once; an NDArray is read when
the operation runs, and an index out of range then surfaces at the wait. Indices may be negative, and a float
is cut to a whole number: an array of comparisons `a > 2` counts as the indices 0 and 1, not as a mask, as in
MXNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TYPE_CHECKING

import numpy as np

from ..core import ShapeError
from ..core.errors import IndexingError, PlaceError
from ..engine import Var
from .calls.invoke import note_copy, refuse_loss
from .gradients.noted_index import gather, note_part
from .gradients.tape import flows, MODE, origin_of, refuse_write
from .memory.storage import RawArray, Shape, Storage
from .memory.transfer import push_copy, push_fill, push_on, push_values
from .operators.arithmetic import number

if TYPE_CHECKING:
    from .ndarray import NDArray

Key = tuple[Any, ...]


def get_item(array: NDArray, key: Any) -> NDArray:
    """The view or copy, by the table above."""
    if type(key) is int:  # a row: the loop `for row in a` lives here
        rows = array.storage
        if rows.ndim and -len(rows) <= key < len(rows):
            row = array.alias(rows[key] if rows.ndim > 1 else rows[key : key + 1 or None])
            if MODE.flags:
                note_part(array, (key,), row)
            return row
    where, basic = _normal(key, array.storage.shape)
    if MODE.flags and not basic and flows(origin_of(array)):
        return gather(array, where, _indexed_shape(array.storage.shape, where) or (1,))
    if basic:
        backend = array.backend
        part = backend.part(array.storage, where)
        if part.ndim == 0 and array.storage.ndim:
            part = part.reshape(1)
        if part.flags.c_contiguous:
            view = array.alias(part)
            if MODE.flags:
                note_part(array, where, view)
            return view
        result = array.fresh(part.shape, part.dtype, array.context)
        push_on(
            backend, partial(backend.assign, result.storage, part), (array.var,), (result.var,), name="slice"
        )
        if MODE.flags:
            note_part(array, where, result)
        return result
    shape = _indexed_shape(array.storage.shape, where)
    result = array.fresh(shape or (1,), array.storage.dtype, array.context)
    backend, source, final = array.backend, array.storage, result.storage.reshape(shape)

    def look_up() -> None:
        backend.look_up(final, source, _resolve(where))

    push_on(backend, look_up, (array.var,), (result.var,), name="gather", others=_vars(where))
    return result


def set_item(array: NDArray, key: Any, value: Any) -> None:
    """Assign a number, an NDArray or an array-like, broadcast and converted to `array`'s dtype."""
    where, basic = _normal(key, array.storage.shape)
    backend, target = array.backend, array.storage
    place = backend.part(target, where) if basic else None
    # All of it, and in its own order: `a[::-1] = value` is no copy of `value`.
    straight = place is not None and place.size == target.size and place.flags.c_contiguous
    if isinstance(value, Storage) and value.storage.device == "sparse":
        if straight and place is not None and place.shape == target.shape:
            value.copyto(array)
            return
        value = value.plain()
    shape = place.shape if place is not None else _indexed_shape(target.shape, where)
    if isinstance(value, Storage):
        source: Any = _fitting(value.storage, shape)
    else:
        source = _source(value, shape, target.dtype)
    whole = place is not None and place.size == target.size and not array.partial
    if MODE.flags:
        refuse_write(array, "a[...] = value")
        if straight and whole and isinstance(value, Storage) and value.storage.shape == target.shape:
            if value is not array and note_copy(value, array, "a[:] = value"):
                return
        refuse_loss(value, "a[...] = value")
    # The rest of the old value counts as read: if it is poisoned the array stays poisoned.
    reads = () if whole else (array.var,)
    if place is None:
        _put_at(array, where, source, value)
    elif isinstance(value, Storage):
        push_copy(value, array, name="assign", values=source, place=place, reads=reads, kind="compute")
    elif isinstance(source, np.ndarray):
        push_values(source, array, name="assign", place=place, reads=reads)
    else:
        push_fill(array, source, name="assign", place=place, reads=reads)


def _put_at(array: NDArray, where: Key, source: Any, value: Any) -> None:
    """Push the assignment of `source`, a number or a bare array; that of `value` if it is an NDArray."""
    backend, target = array.backend, array.storage
    reads, others = [array.var], [*_vars(where)]
    sender = value.backend if isinstance(value, Storage) else backend
    if isinstance(value, Storage):
        (reads if sender is backend else others).append(value.var)

    def assign() -> None:
        given = source if sender is backend else sender.look(source, value.var)
        backend.put_at(target, _resolve(where), given)

    push_on(backend, assign, reads, (array.var,), name="assign", others=others)


def _source(value: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """The number or numpy array to assign. Arrays are copied: the caller may change them."""
    if isinstance(value, (np.ndarray, list, tuple)) or hasattr(value, "__array__"):
        with np.errstate(all="ignore"):
            copied = np.array(value, dtype=dtype)
        return _fitting(copied, shape)
    return number(value)


def _fitting(source: RawArray, shape: Shape) -> RawArray:
    """`source` without leading axes of length 1 that `shape` lacks, if it then broadcasts to `shape`."""
    have = source.shape
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    if len(have) > len(shape) or any(h not in (1, s) for h, s in zip(have[::-1], shape[::-1])):
        raise ShapeError(f"cannot assign an array of shape {source.shape} to a part of shape {shape}.")
    return source.reshape(have)


# -- keys ----------------------------------------------------------------------------------------------


def _normal(key: Any, shape: Shape) -> tuple[Key, bool]:
    """The key as a tuple of ints, slices, None, `...`, integer arrays and NDArrays; True if it has no arrays.

    Raises IndexingError for indices out of range or objects that are no index.
    """
    items: list[Any] = []
    axis = 0
    basic = True
    given = list(key) if isinstance(key, tuple) else [key]
    if sum(k is Ellipsis for k in given) > 1:
        raise IndexingError("an index has at most one '...'.")
    used = sum(k is not None and k is not Ellipsis for k in given)
    if used > len(shape):
        raise IndexingError(f"too many indices: {used} for an array of shape {shape}.")
    for item in given:
        if item is Ellipsis:
            axis += len(shape) - used
            items.append(item)
        elif item is None:
            items.append(item)
        else:
            normal = _item(item, axis, shape)
            basic = basic and isinstance(normal, (int, slice))
            items.append(normal)
            axis += 1
    return tuple(items), basic


def _item(item: Any, axis: int, shape: Shape) -> Any:
    length = shape[axis]
    if isinstance(item, slice):
        return slice(*(None if part is None else _whole(part) for part in (item.start, item.stop, item.step)))
    if isinstance(item, Storage):
        _refuse_mask(item.storage.dtype)
        return item
    if isinstance(item, (bool, np.bool_)):
        _refuse_mask(np.dtype(bool))
    if hasattr(item, "__index__") and not isinstance(item, np.ndarray):
        index = item.__index__()
        _check_range(index, index, length, axis)
        return index
    if isinstance(item, (list, tuple, range, np.ndarray)):
        indices = np.asarray(item)
        if not indices.size and not isinstance(item, np.ndarray):
            indices = indices.astype("int64")
        _refuse_mask(indices.dtype)
        if indices.dtype.kind not in "iuf":
            raise IndexingError(f"indices are whole numbers, got an array of {indices.dtype}.")
        indices = indices.astype("int64")
        if indices.size:
            _check_range(int(indices.min()), int(indices.max()), length, axis)
        return indices
    raise IndexingError(
        f"an index is an int, a slice, None, '...', or a list or array of ints; got {type(item).__name__}."
    )


def _whole(part: Any) -> int:
    if not hasattr(part, "__index__"):
        raise IndexingError(f"the ends of a slice are whole numbers, got {part!r}.")
    return int(part.__index__())


def _check_range(least: int, most: int, length: int, axis: int) -> None:
    for index in (least, most):
        if not -length <= index < length:
            raise PlaceError(f"index {index} is out of range for axis {axis} of length {length}.")


def _refuse_mask(dtype: np.dtype[Any]) -> None:
    if dtype.kind == "b":
        raise IndexingError(
            "masks are not supported: the shape of the result would depend on values. "
            "Use a.asnumpy()[mask], or indices."
        )


def _vars(where: Key) -> Sequence[Var]:
    return [item.var for item in where if isinstance(item, Storage)]


def _resolve(where: Key) -> Key:
    """The key with the current values of its NDArrays."""
    return tuple(
        item.backend.look(item.storage, item.var).astype("int64") if isinstance(item, Storage) else item
        for item in where
    )


def _indexed_shape(shape: Shape, where: Key) -> Shape:
    """The shape of `a[where]` by numpy's rule: index arrays broadcast, and stand where they stood.

    If something separates them they come first. Among arrays an int counts as one too.
    """
    used = sum(item is not None and item is not Ellipsis for item in where)
    before: list[int] = []
    after: list[int] = []
    arrays: list[Shape] = []
    state = "before"
    split = False
    axis = 0

    def keep(*dims: int) -> None:
        nonlocal state
        if state == "arrays":
            state = "after"
        (before if state == "before" else after).extend(dims)

    for item in where if any(i is Ellipsis for i in where) else (*where, ...):
        if item is Ellipsis:
            rest = len(shape) - used
            keep(*shape[axis : axis + rest])
            axis += rest
        elif item is None:
            keep(1)
        elif isinstance(item, slice):
            keep(len(range(*item.indices(shape[axis]))))
            axis += 1
        else:
            split = split or state == "after"
            state = "arrays"
            arrays.append(() if isinstance(item, int) else _shape_of(item))
            axis += 1
    try:
        common = np.broadcast_shapes(*arrays)
    except ValueError:
        raise IndexingError(f"index arrays of shapes {arrays} do not broadcast.") from None
    return (*common, *before, *after) if split else (*before, *common, *after)


def _shape_of(item: Any) -> Shape:
    return item.storage.shape if isinstance(item, Storage) else item.shape
