"""Flat indices of elements or rows, and sums into indexed elements.

Indices may come in any dtype, as in MXNet; they are cut towards 0 into int64 scratch first. The operator's
`mode` says how an index out of range is treated:

    clip     moved to the nearest end (so -1 becomes 0)
    wrap     counted round
    raise    an error when it runs
    ends     as `raise`, but [-length, 0) counts from the end, as in Python
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...core.dtype import float32
from ...core.errors import PlaceError
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..blocks import PIECE


def whole(xp: Any, indices: Any, work: Any) -> Any:
    """`indices` as a flat int64 array at the beginning of `work`, 8 bytes for each."""
    flat = work[: 8 * indices.size].view("int64")
    xp.copyto(flat, indices.reshape(-1), casting="unsafe")
    return flat


def bounded(xp: Any, flat: Any, length: int, mode: str, what: str) -> Any:
    """Move int64 indices into [0, length) in place, by `mode`; `what` is the operator. Returns `flat`."""
    if mode == "clip":
        xp.maximum(flat, 0, out=flat)
        xp.minimum(flat, length - 1, out=flat)
    elif mode == "wrap":
        if length:
            xp.remainder(flat, length, out=flat)
    elif flat.size:
        least, most = flat.min(), flat.max()
        if least < (-length if mode == "ends" else 0) or most >= length:
            begin = -length if mode == "ends" else 0
            raise PlaceError(
                f"{what}: indices must be in [{begin}, {length}), got {least} to {most}.", operation=what
            )
        if least < 0:
            xp.remainder(flat, length, out=flat)
    return flat


def require_ends(xp: Any, indices: Any, length: int, what: str) -> None:
    """Raise PlaceError for indices of the operator `what` that mode "ends" refuses."""
    if indices.size and not (indices.min() > -length - 1 and indices.max() < length):
        with np.errstate(invalid="ignore"):
            bounded(xp, indices.astype("int64"), length, "ends", what)


def from_end(t: Any, index: Any, length: int) -> Any:
    """An index in mode "ends" as a tensor of whole numbers that count from the beginning."""
    number = t.trunc(index)
    return t.where("lt", number, 0.0, number + float(length), number)


def places_along(xp: Any, index: Any, shape: Shape, axis: int, mode: str, work: Any, what: str) -> Any:
    """Flat indices, in an array of `shape`, of the elements that `index` selects along `axis`: int64, in
    `work`.

    index: as many axes as `shape`, none longer but for `axis`; its element [i, j, ...] selects element
    [i, index[i, j, ...], ...]. `work`: `along_bytes`.
    """
    flat = bounded(xp, whole(xp, index, work), shape[axis], mode, what)
    if not flat.size:
        return flat
    dims, lengths = index.shape, list(shape)
    if (*dims[:axis], *dims[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :]):
        # The other axes agree: joined, they leave three axes, whatever their number was.
        dims = (prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :]))
        lengths = [dims[0], shape[axis], dims[2]]
        axis = 1
    grid = flat.reshape(dims)
    stride = prod(lengths[axis + 1 :])
    if stride != 1:
        xp.multiply(flat, stride, out=flat)
    counted = work[8 * flat.size :]
    for i, n in enumerate(dims):
        if i != axis and n > 1:
            steps = counted[: 8 * n].view("int64")
            _count(xp, steps, prod(lengths[i + 1 :]))
            xp.add(grid, steps.reshape(n, *(1,) * (len(dims) - 1 - i)), out=grid)
    return flat


def along_bytes(index: Shape) -> int:
    """Scratch in bytes that `places_along` needs for indices of that shape."""
    return 8 * (prod(index) + prod(index))


def _count(xp: Any, out: Any, step: int) -> None:
    """Fill with 0, step, 2 * step, ..."""
    for begin in range(0, out.size, PIECE):
        part = out[begin : begin + PIECE]
        xp.multiply(xp.arange(begin, begin + part.size), step, out=part)


def combine(xp: Any, ufunc: Any, target: Any, flat: Any, source: Any) -> None:
    """``target[:, flat[i]] = ufunc(target[:, flat[i]], source[:, i])`` for each i, one after another.

    target: (A, K, B);  flat: (n,) indices in [0, K);  source: (A, n, B), of one dtype. Equal indices are
    combined in the order of i. `ufunc.at` is several times as fast on flat arrays as on rows, so the flat
    indices of all elements are computed, a piece at a time.
    """
    outer, n, inner = source.shape
    if not source.size:
        return
    if inner >= PIECE:
        for o in range(outer):
            for i, row in enumerate(flat):
                into = target[o, row]
                ufunc(into, source[o, i], out=into)
        return
    length = target.shape[1]
    columns = xp.arange(inner)
    if n * inner > PIECE // 2:
        rows = PIECE // inner
        for o in range(outer):
            into, given = target[o].reshape(-1), source[o]
            for begin in range(0, n, rows):
                places = flat[begin : begin + rows, None] * inner + columns
                ufunc.at(into, places.reshape(-1), given[begin : begin + rows].reshape(-1))
        return
    base = (flat[:, None] * inner + columns).reshape(-1)
    several = PIECE // (n * inner)
    for begin in range(0, outer, several):
        part = source[begin : begin + several]
        places = xp.arange(len(part))[:, None] * (length * inner) + base
        ufunc.at(target[begin : begin + several].reshape(-1), places.reshape(-1), part.reshape(-1))


def sum_bytes(shape: Shape, dtype: DType) -> int:
    """Scratch in bytes that `add_into` needs for a target of that shape and dtype."""
    return 4 * prod(shape) if is_small_float(dtype) else 0


def is_small_float(dtype: DType) -> bool:
    """True if numbers of `dtype` are summed in float32."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def add_into(xp: Any, target: Any, flat: Any, source: Any, work: Any) -> None:
    """`combine` by addition; float16 and bfloat16 are summed in float32, in `work` (`sum_bytes`)."""
    if not is_small_float(target.dtype):
        combine(xp, xp.add, target, flat, source)
        return
    total = work[: 4 * target.size].view("float32").reshape(target.shape)
    xp.copyto(total, target)
    outer, n, inner = source.shape
    several, rows = max(1, PIECE // max(1, n * inner)), max(1, PIECE // max(1, inner))
    for o in range(0, outer, several):
        for begin in range(0, n, rows):
            part = source[o : o + several, begin : begin + rows].astype(float32)
            combine(xp, xp.add, total[o : o + several], flat[begin : begin + rows], part)
    xp.copyto(target, total, casting="unsafe")
