"""Shapes, parts and order of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..exported_node import ExportedNode


def reshape(n: ExportedNode) -> str:
    return n.reshaped(n[0], n.shape(), n.out_shape())


def transpose(n: ExportedNode) -> str:
    order = list(n.attrs.axes) or list(reversed(range(len(n.shape()))))
    return n.writer.add("Transpose", n[0], perm=order)


def concat(n: ExportedNode) -> str:
    return n.writer.add("Concat", *n.inputs, axis=int(n.attrs.dim))


def slice_axis(n: ExportedNode) -> str:
    """Elements [begin, end) of one axis; what is negative counts from its end, in ONNX too."""
    a = n.attrs
    end = np.iinfo(np.int64).max if a.end is None else a.end
    return n.writer.add("Slice", n[0], *(n.writer.ints([v]) for v in (a.begin, end, a.axis)))


def split(n: ExportedNode) -> list[str]:
    axis = n.attrs.axis % len(n.shape())
    parts = n.writer.several("Split", [n[0]], n.attrs.num_outputs, axis=axis)
    if not n.attrs.squeeze_axis:
        return parts
    part = (*n.shape()[:axis], 1, *n.shape()[axis + 1 :])
    return [n.reshaped(p, part, n.out_shape()) for p in parts]


def broadcast(n: ExportedNode) -> str:
    """A length of 1 is one that stays as it is."""
    same = [1 if a == b else b for a, b in zip(n.shape(), n.out_shape(), strict=True)]
    return n.writer.add("Expand", n[0], n.vector(same))


WRITERS: dict[str, Callable[[ExportedNode], Any]] = {
    **dict.fromkeys(("Reshape", "_reshape_to", "expand_dims", "squeeze"), reshape),
    "Concat": concat,
    "SliceChannel": split,
    "broadcast_to": broadcast,
    "slice_axis": slice_axis,
    "transpose": transpose,
}
