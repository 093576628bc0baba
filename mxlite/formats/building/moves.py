"""Ranges of an axis, and padding."""

from __future__ import annotations

import numpy as np

from .builder import LARGEST_FOLDED
from .value import GraphValue


def take_range(x: GraphValue, axis: int, where: range) -> GraphValue:
    """The elements of one axis at the places of a range."""
    b = x.builder
    if not len(where):
        shape = (*x.shape[:axis], 0, *x.shape[axis + 1 :])
        return b.full(shape, 0, x.dtype)
    if where.step > 0:
        return b.slice(x, axis, where.start, where[-1] + 1, where.step)
    if where.step == -1 and len(where) == x.shape[axis]:
        return b.op("reverse", x, axis=(axis,))
    return take_range(b.op("reverse", x, axis=(axis,)), axis, _mirrored(where, x.shape[axis]))


def _mirrored(where: range, length: int) -> range:
    """The same places in the reversed axis."""
    return range(length - 1 - where.start, length - where[-1], -where.step)


def padded(
    x: GraphValue, sides: list[tuple[int, int]], mode: str = "constant", fill: float = 0
) -> GraphValue:
    """`x` with (before, after) elements added to each axis, or cut off where negative."""
    b = x.builder
    for axis, (before, after) in enumerate(sides):
        begin, end = max(0, -before), x.shape[axis] - max(0, -after)
        if (begin, end) != (0, x.shape[axis]):
            x = take_range(x, axis, range(begin, max(begin, end)))
    sides = [(max(0, p), max(0, q)) for p, q in sides]
    if not any(map(any, sides)):
        return x
    if x.array is not None and x.size <= LARGEST_FOLDED // 4:
        how = {"constant_values": fill} if mode == "constant" else {}
        return b.constant(np.pad(x.array, sides, mode, **how))  # type: ignore[call-overload]
    short = any(max(pair) >= d for pair, d in zip(sides, x.shape) if any(pair))
    if mode in ("constant", "edge") or (mode == "reflect" and not short):
        widths = tuple(w for pair in sides for w in pair)
        return b.op("Pad", x, mode=mode, pad_width=widths, constant_value=float(fill))
    for axis, (before, after) in enumerate(sides):
        if before or after:
            places = np.pad(np.arange(x.shape[axis]), (before, after), mode)  # type: ignore[call-overload]
            x = b.op("take", x, b.constant(places, np.int64), axis=axis)
    return x
