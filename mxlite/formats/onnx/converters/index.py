"""Gathering and scattering by index, sorting, one-hot.

GatherND's vectors of indices become row numbers: the indexed axes are flattened into one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.value import GraphValue
from ..node import OnnxNode


def _strides(shape: tuple[int, ...]) -> list[int]:
    """The stride of each axis in elements."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def _counted(indices: GraphValue, length: int) -> GraphValue:
    """Indices counted from the front, as int64."""
    b = indices.builder
    whole = b.cast(indices, np.int64)
    if whole.array is not None:
        return b.constant(whole.array % max(length, 1))
    return b.op("_mod_scalar", whole, scalar=float(max(length, 1)))


def gather(n: OnnxNode) -> GraphValue:
    b, data, indices = n.builder, n[0], n[1]
    axis = b.axis(n.whole("axis", 0), data.rank)
    length = data.shape[axis]
    if indices.array is not None and indices.size:
        low, high = int(indices.array.min()), int(indices.array.max())
        if low < -length or high >= length:
            raise FormatError(
                f"indices {low} to {high} are not all in [-{length}, {length}) for axis {axis}."
            )
        if data.array is not None:
            return b.constant(np.take(data.array, indices.array, axis))
        indices = _counted(indices, data.shape[axis])
        if not indices.rank:
            part = b.slice(data, axis, place := int(indices.array), place + 1)  # type: ignore[arg-type]
            return b.reshape(part, (*data.shape[:axis], *data.shape[axis + 1 :]))
        return b.op("take", data, indices, axis=axis)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return b.reshape(b.op("take", data, _counted(indices, length), axis=axis), shape)


def gather_elements(n: OnnxNode) -> GraphValue:
    b, data, indices = n.builder, n[0], n[1]
    axis = b.axis(n.whole("axis", 0), data.rank)
    return b.op("gather_elements", data, b.cast(indices, np.int64), axis=axis)


def scatter_elements(n: OnnxNode) -> GraphValue:
    b, data = n.builder, n[0]
    how = n.choice("reduction", "none", "add", "mul", "min", "max")
    axis = b.axis(n.whole("axis", 0), data.rank)
    return b.op("scatter_elements", data, n[1], n[2], axis=axis, reduction=how)


def scatter_nd(n: OnnxNode) -> GraphValue:
    """The operator wants the axis of index vectors first."""
    b, data, indices = n.builder, n[0], n[1]
    how = n.choice("reduction", "none", "add", "mul", "min", "max")
    turned = b.transpose(indices, (indices.rank - 1, *range(indices.rank - 1)))
    return b.op("scatter_nd_update", data, turned, n[2], reduction=how)


def tensor_scatter(n: OnnxNode) -> GraphValue:
    """Each sample's update is written into its cache at its own position along one axis."""
    b, cache, update, first = n.builder, n[0], n[1], n.get(2)
    axis = b.axis(n.whole("axis", -2), cache.rank)
    steps = b.constant(np.arange(update.shape[axis]).reshape(-1, *(1,) * (cache.rank - 1 - axis)), np.int64)
    places = steps
    if first is not None:
        places = b.binary("add", b.reshape(first, (first.size, *(1,) * (cache.rank - 1))), steps)
    if n.choice("mode", "linear", "circular") == "circular":
        places = b.op("_mod_scalar", places, scalar=float(cache.shape[axis]))
    return b.op("scatter_elements", cache, b.expand(places, update.shape), update, axis=axis)


def _flat_rows(n: OnnxNode, indices: GraphValue, shape: tuple[int, ...], batch: int = 0) -> GraphValue:
    """The row numbers that index vectors denote, in an array whose indexed axes are flattened."""
    b = n.builder
    depth = indices.shape[-1]
    strides = _strides(shape[: batch + depth])
    total = None
    for i in range(depth):
        column = b.reshape(b.slice(indices, -1, i, i + 1), indices.shape[:-1])
        term = _counted(column, shape[batch + i]) * strides[batch + i]
        total = term if total is None else b.binary("add", total, term)
    if total is None:
        raise FormatError("indices must have one number or more in their last axis.")
    for i in range(batch):
        grid = np.arange(shape[i]).reshape(-1, *(1,) * (indices.rank - 2 - i)) * strides[i]
        total = b.binary("add", total, b.constant(grid, np.int64))
    return total


def gather_nd(n: OnnxNode) -> GraphValue:
    b, data, indices = n.builder, n[0], n[1]
    batch = n.whole("batch_dims", 0)
    depth = indices.shape[-1]
    rows = _flat_rows(n, indices, data.shape, batch)
    rest = data.shape[batch + depth :]
    table = b.reshape(data, (prod(data.shape[: batch + depth]), *rest))
    return b.reshape(b.op("take", table, rows), (*indices.shape[:-1], *rest))


def one_hot(n: OnnxNode) -> GraphValue:
    """Indices from -depth on count from the end; any other out of range gives a row of `off`."""
    b, indices = n.builder, n[0]
    depth = int(n.known_number(1, "depth"))
    off, on = n.array(2, "values").tolist()
    dtype = n[2].dtype
    axis = n.whole("axis", -1)
    axis = axis + indices.rank + 1 if axis < 0 else axis
    whole = b.cast(indices, np.int64)
    below = b.cast(whole < 0, np.int64)
    places = b.binary("add", whole, below * depth)
    rows = b.op("one_hot", places, depth=depth, on_value=float(on), off_value=float(off), dtype=str(dtype))
    order = [*range(axis), indices.rank, *range(axis, indices.rank)]
    return b.transpose(rows, order)


def top_k(n: OnnxNode) -> tuple[GraphValue, GraphValue]:
    b, x = n.builder, n[0]
    k = n.whole("k") if n.version < 10 else int(n.known_number(1, "k"))
    axis = b.axis(n.whole("axis", -1), x.rank)
    if not 0 <= k <= x.shape[axis]:
        raise FormatError(f"k is {k}, but axis {axis} has length {x.shape[axis]}.")
    values, places = b.ops(
        "topk", x, axis=axis, k=k, ret_typ="both", is_ascend=not n.flag("largest", True), dtype="int64"
    )
    return values, places


def _constant_only(n: OnnxNode, *places: int) -> list[np.ndarray]:
    arrays = [n[i].array for i in places]
    if any(a is None for a in arrays):
        raise NotSupportedError("the shape of its output depends on the numbers in its input")
    return arrays  # type: ignore[return-value]


def non_zero(n: OnnxNode) -> GraphValue:
    (x,) = _constant_only(n, 0)
    return n.builder.constant(np.array(np.nonzero(x), np.int64))


def compress(n: OnnxNode) -> GraphValue:
    x, chosen = n[0], n.array(1, "condition")
    b = n.builder
    if n[1].array is None or n[1].entry is not None:
        raise NotSupportedError("the shape of its output depends on the numbers in its input")
    axis = n.whole("axis", None)
    if axis is None:
        x, axis = b.reshape(x, (x.size,)), 0
    return b.op("take", x, b.constant(np.flatnonzero(chosen), np.int64), axis=b.axis(axis, x.rank))


def unique(n: OnnxNode) -> tuple[GraphValue, ...]:
    (x,) = _constant_only(n, 0)
    axis = n.whole("axis", None)
    parts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    values, first, inverse, counts = parts
    if not n.flag("sorted", True):
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        inverse = np.argsort(order)[inverse]
        first, counts = first[order], counts[order]
    b = n.builder
    return b.constant(values), *(b.constant(a.reshape(-1), np.int64) for a in (first, inverse, counts))


def reverse_sequence(n: OnnxNode) -> GraphValue:
    """The first `lengths[i]` elements of each sequence in reverse order, by places that are constants."""
    b, x = n.builder, n[0]
    time, batch = n.whole("time_axis", 0), n.whole("batch_axis", 1)
    lengths = n.known_ints(1, "sequence_lens") or ()
    if {time, batch} != {0, 1} or len(lengths) != x.shape[batch]:
        raise FormatError("time_axis and batch_axis must be 0 and 1, with one length for each sequence.")
    steps, count = x.shape[time], x.shape[batch]
    places = np.tile(np.arange(steps), (count, 1))
    for i, length in enumerate(lengths):
        places[i, :length] = places[i, :length][::-1]
    flat = places + np.arange(count)[:, None] * steps  # of (batch, time)
    if time == 0:
        flat = (places * count + np.arange(count)[:, None]).T
    rows = b.reshape(x, (steps * count, *x.shape[2:]))
    return b.reshape(b.op("take", rows, b.constant(flat.reshape(-1), np.int64)), x.shape)


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "Compress": compress,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "TopK": top_k,
    "Unique": unique,
}
