"""Shapes, parts and order of axes. Shapes are known, so every reshaping is one to numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..exported_node import ExportedNode


def reshape(n: ExportedNode) -> str:
    return n.writer.add("Reshape", n[0], n.writer.ints(n.out_shape()))


def transpose(n: ExportedNode) -> str:
    order = list(n.attrs.axes) or list(reversed(range(len(n.shape()))))
    return n.writer.add("Transpose", n[0], perm=order)


def concat(n: ExportedNode) -> str:
    return n.writer.add("Concat", *n.inputs, axis=int(n.attrs.dim))


def slice_axis(n: ExportedNode) -> str:
    """Elements [begin, end) of one axis, counted as the result's length says."""
    axis = n.attrs.axis % len(n.shape())
    length = n.shape()[axis]
    begin = n.attrs.begin + length if n.attrs.begin < 0 else n.attrs.begin
    begin, end, axes = (n.writer.ints([v]) for v in (begin, begin + n.out_shape()[axis], axis))
    return n.writer.add("Slice", n[0], begin, end, axes)


def split(n: ExportedNode) -> list[str]:
    w, axis, count = n.writer, n.attrs.axis % len(n.shape()), n.attrs.num_outputs
    sizes = w.ints([n.shape()[axis] // count] * count)
    parts = w.several("Split", [n[0], sizes], count, axis=axis)
    if not n.attrs.squeeze_axis:
        return parts
    return [w.add("Reshape", p, w.ints(n.out_shape())) for p in parts]


def broadcast(n: ExportedNode) -> str:
    return n.writer.add("Expand", n[0], n.writer.ints(n.out_shape()))


WRITERS: dict[str, Callable[[ExportedNode], Any]] = {
    **dict.fromkeys(("Reshape", "_reshape_to", "expand_dims", "squeeze"), reshape),
    "Concat": concat,
    "SliceChannel": split,
    "broadcast_to": broadcast,
    "slice_axis": slice_axis,
    "transpose": transpose,
}
